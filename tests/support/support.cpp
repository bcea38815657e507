#define DOCTEST_CONFIG_IMPLEMENT
#include "dsf/test/support.h"

#include <unistd.h>

#include <cstdlib>
#include <doctest/doctest.h>
#include <iostream>

namespace dsf::test {
namespace {
int skips = 0;
}

std::filesystem::path shared_data() {
  const char* env = std::getenv("DSF_SHARED_DIR");
  const std::filesystem::path dir = (env != nullptr ? std::filesystem::path(env) : std::filesystem::path(DSF_SOURCE_DIR) / ".." / "shared") / "data";
  return std::filesystem::is_directory(dir) ? std::filesystem::canonical(dir) : std::filesystem::path{};
}

std::filesystem::path golden() { return std::filesystem::path(DSF_SOURCE_DIR) / "tests" / "golden"; }

void skip(std::string_view what, std::string_view why) {
  ++skips;
  std::cerr << "SKIP " << what << ": " << why << "\n";
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "dsf-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace dsf::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int rc = context.run();
  if (dsf::test::skips > 0) std::cerr << "skipped parts: " << dsf::test::skips << "\n";
  return rc;
}
