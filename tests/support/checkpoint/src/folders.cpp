#include "dsf/made_checkpoint/folders.h"

namespace dsf::made_checkpoint {

std::filesystem::path native_folder() { return std::filesystem::path(DSF_MADE_DIR) / "native"; }
std::filesystem::path exl3_folder() { return std::filesystem::path(DSF_MADE_DIR) / "exl3"; }
std::filesystem::path dequantised_folder() { return std::filesystem::path(DSF_MADE_DIR) / "dequantised"; }

void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
}

}  // namespace dsf::made_checkpoint
