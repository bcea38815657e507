#include "tools/fetch/owner.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <random>
#include <sstream>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/io/file.h"

namespace dsf::fetch {
namespace {

constexpr int64_t kFreshSeconds = 60;
constexpr int64_t kTouchNs = 15'000'000'000;

std::string one_word(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.empty() ? "-" : text;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? one_word(name.data()) : "-";
}

std::string boot_id() {
  const auto text = io::read_text("/proc/sys/kernel/random/boot_id", 1024);
  return text ? one_word(*text) : "-";
}

// Field 22 of /proc/<pid>/stat; "-" when there is no such process. The command in field 2 may hold anything but a
// closing parenthesis followed by the rest, so the count starts behind the last one.
std::string start_time(const std::string& pid) {
  const auto text = io::read_text("/proc/" + pid + "/stat", 4096);
  if (!text || text->rfind(')') == std::string::npos) return "-";
  std::istringstream fields(text->substr(text->rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return one_word(field);
}

int64_t age_seconds(const std::filesystem::path& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? unix_time_ms() / 1000 - st.st_mtim.tv_sec : kFreshSeconds;
}

bool create_claim(const std::filesystem::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const io::Fd file(fd, path);
  return io::write_all(file, as_bytes(text)).has_value();
}

std::string random_word() {
  std::random_device random;
  return std::to_string((uint64_t{random()} << 32 | random()) % 1'000'000'000'000);
}

}  // namespace

std::string owner_text() {
  const std::string pid = std::to_string(::getpid());
  return host_name() + " " + pid + " " + boot_id() + " " + start_time(pid);
}

bool owner_alive(const std::string& text, int64_t age_s) {
  std::istringstream words(text);
  std::string host, pid, boot, start;
  words >> host >> pid >> boot >> start;
  if (host != host_name()) return age_s < kFreshSeconds;
  return boot == boot_id() && start != "-" && parse_u64(pid) && start_time(pid) == start;
}

std::string owner_of(const std::filesystem::path& state) {
  const auto text = io::read_text(state / "OWNER", 4096);
  return text ? one_word(*text) : std::string();
}

Result<Owner> Owner::claim(const std::filesystem::path& state) {
  Owner owner;
  const auto file = state / "OWNER";
  const std::string mine = owner_text();
  for (int i = 0; i < 3; ++i) {
    if (create_claim(file, mine)) {
      owner.file_ = file;
      owner.touched_ns_ = monotonic_ns();
      return owner;
    }
    const std::string other = owner_of(state);
    if (!other.empty() && owner_alive(other, age_seconds(file))) break;
    // The claim of a process that is gone: moved away first, so that two who see it do not remove each other's new one.
    const auto aside = state / ("OWNER." + random_word());
    if (io::rename_file(file, aside)) (void)io::remove_file(aside);
  }
  owner.exclusive_ = false;
  owner.parts_ = "parts-" + random_word();
  return owner;
}

Owner::Owner(Owner&& o) noexcept
    : file_(std::exchange(o.file_, {})),
      parts_(std::move(o.parts_)),
      exclusive_(o.exclusive_),
      touched_ns_(o.touched_ns_) {}

Owner::~Owner() {
  if (!file_.empty()) (void)io::remove_file(file_);
}

void Owner::touch() {
  if (file_.empty() || monotonic_ns() - touched_ns_ < kTouchNs) return;
  touched_ns_ = monotonic_ns();
  (void)::utimensat(AT_FDCWD, file_.c_str(), nullptr, 0);
}

}  // namespace dsf::fetch
