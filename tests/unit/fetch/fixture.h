#pragma once
// A loopback Hub with one repository, and dsf-fetch's get as a function call with quick retries.
#include <map>
#include <memory>
#include <string>

#include "dsf/loopback_hub/loopback_hub.h"
#include "dsf/test/support.h"
#include "tools/fetch/get.h"
#include "tools/fetch/pin_command.h"

namespace dsf::test {

// A rule of the loopback Hub; times -1: for ever, nth: from this request on.
loopback_hub::Fault make_fault(const std::string& action, int64_t n, int64_t times, const std::string& host = "cdn",
                               const std::string& path = "", const std::string& text = "", int64_t nth = 0);

class FetchFixture {
 public:
  explicit FetchFixture(loopback_hub::Options options = {});
  std::shared_ptr<hub::Shared> shared(const std::string& token = "") const;
  fetch::GetOptions options() const;
  Result<int> get(const fetch::GetOptions& options, const std::string& token = "") const;
  Result<int> get() const { return get(options()); }
  void fault(const std::string& action, int64_t n = 0, int64_t times = -1, const std::string& host = "cdn",
             const std::string& path = "", const std::string& text = "") const;
  void check_complete() const;  // every file is there with the right bytes
  bool exists(const std::string& path) const;
  std::string read(const std::string& path) const;
  void write(const std::string& path, const std::string& content) const;

  TempDir dir;  // hub/org/repo, out
  std::map<std::string, std::string> files;
  std::unique_ptr<loopback_hub::LoopbackHub> hub;
};

std::string noise(size_t bytes, uint64_t seed);

}  // namespace dsf::test
