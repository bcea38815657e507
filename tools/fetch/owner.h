#pragma once
// Who uses the parts of a folder. The folder's flock() decides that; but on some network file systems flock() succeeds
// for everybody, and two writers in one part file have mixed bytes before. So each run also leaves its name in
// STATE/OWNER, made exclusively, and a run that finds a living owner there works in a parts folder of its own: at worst
// the bytes come twice, they never mix. Source: hub.md 3.13.
#include <cstdint>
#include <filesystem>
#include <string>

#include "dsf/base/result.h"

namespace dsf::fetch {

class Owner {
 public:
  // Call with the folder's lock held. Errors: kLocal.
  static Result<Owner> claim(const std::filesystem::path& state);
  ~Owner();  // removes the claim
  Owner(Owner&& o) noexcept;
  Owner& operator=(Owner&&) = delete;
  bool exclusive() const { return exclusive_; }
  // Name of the parts folder below STATE: "parts", or one of this run alone.
  const std::string& parts() const { return parts_; }
  // Keeps the claim fresh for processes of other hosts; call every few seconds.
  void touch();

 private:
  Owner() = default;
  std::filesystem::path file_;
  std::string parts_ = "parts";
  bool exclusive_ = true;
  int64_t touched_ns_ = 0;
};

// "host pid boot-id start-time" of this process.
std::string owner_text();
// The process of that text lives: on this host and boot by its start time, elsewhere by the age of its claim.
bool owner_alive(const std::string& text, int64_t age_s);
// Text of the claim in that folder, for messages; empty when there is none.
std::string owner_of(const std::filesystem::path& state);

}  // namespace dsf::fetch
