#pragma once
// What every test shares: where data lies, temporary folders, visible skips. Header of the static library dsf::test_support, which
// also carries doctest's main().
#include <filesystem>
#include <string>
#include <string_view>

namespace dsf::test {

// The independent test data beside the repository (../shared/data, or $DSF_SHARED_DIR/data). Empty when it is not there.
std::filesystem::path shared_data();
// Committed small vectors: tests/golden.
std::filesystem::path golden();
// Says on stderr "SKIP <what>: <why>" and counts it; the run's last line reports the count. Use:
//   if (shared_data().empty()) return skip("token map", "shared data not present");
void skip(std::string_view what, std::string_view why);

// A fresh folder, removed with its content at the end of the scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace dsf::test
