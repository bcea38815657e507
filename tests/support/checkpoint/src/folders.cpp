#include "dsf/made_checkpoint/folders.h"

#include <cstdlib>

namespace dsf::made_checkpoint {
namespace {

// DSF_MADE_DIR in the environment: where the folders were copied to, for tests that run on another machine than the build.
std::filesystem::path made_dir() {
  const char* env = std::getenv("DSF_MADE_DIR");
  return env != nullptr ? env : DSF_MADE_DIR;
}

}  // namespace

std::filesystem::path native_folder() { return made_dir() / "native"; }
std::filesystem::path exl3_folder() { return made_dir() / "exl3"; }
std::filesystem::path dequantised_folder() { return made_dir() / "dequantised"; }

void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

}  // namespace dsf::made_checkpoint
