#include "dsf/codec/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"

namespace dsf::codec {
namespace {

std::string crc_text(std::string_view payload) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", codec::crc32c(as_bytes(payload)));
  return text.data();
}

// The payload of a whole good line; empty otherwise.
std::string_view payload_of(std::string_view line) {
  if (line.size() < 10 || line[line.size() - 9] != ' ') return {};
  const std::string_view payload = line.substr(0, line.size() - 9);
  return crc_text(payload) == line.substr(line.size() - 8) ? payload : std::string_view{};
}

// "P <index> <digest>"
bool parse_claim(std::string_view payload, std::map<uint64_t, std::string>& claims) {
  if (!payload.starts_with("P ")) return false;
  payload.remove_prefix(2);
  const size_t space = payload.find(' ');
  if (space == std::string_view::npos) return false;
  const auto index = parse_u64(payload.substr(0, space));
  const std::string_view digest = payload.substr(space + 1);
  if (!index || digest.empty() || digest.find(' ') != std::string_view::npos) return false;
  claims[*index] = std::string(digest);
  return true;
}

}  // namespace

Result<Journal> Journal::open(const std::filesystem::path& path, const std::string& header) {
  Journal j;
  j.path_ = path;
  j.header_ = "H 1 " + header;
  uint64_t good_bytes = 0;
  if (const auto text = io::read_text(path, 256 * kMiB)) {
    std::string_view rest = *text;
    for (bool first = true;; first = false) {
      const size_t end = rest.find('\n');
      if (end == std::string_view::npos) break;
      const std::string_view payload = payload_of(rest.substr(0, end));
      if (payload.empty() || (first ? payload != j.header_ : !parse_claim(payload, j.claims_))) break;
      good_bytes += end + 1;
      rest.remove_prefix(end + 1);
    }
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return fail(io::errno_error(path, "cannot open"));
  j.fd_ = io::Fd(fd, path);
  if (good_bytes == 0) {
    DSF_OK(j.restart());
  } else if (::ftruncate(fd, static_cast<off_t>(good_bytes)) != 0) {  // cut a torn tail before appending behind it
    return fail(io::errno_error(path, "cannot truncate"));
  }
  return j;
}

Result<void> Journal::write_line(const std::string& payload) {
  return io::write_all(fd_, as_bytes(payload + " " + crc_text(payload) + "\n"));
}

Result<void> Journal::add(uint64_t piece, const std::string& digest) {
  return write_line("P " + std::to_string(piece) + " " + digest);
}

Result<void> Journal::restart() {
  claims_.clear();
  if (::ftruncate(fd_.get(), 0) != 0) return fail(io::errno_error(path_, "cannot truncate"));
  return write_line(header_);
}

}  // namespace dsf::codec
