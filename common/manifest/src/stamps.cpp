#include "dsf/manifest/stamps.h"

#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "dsf/base/time.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"

namespace dsf::manifest {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kQuietMs = 2000;
constexpr int64_t kNetworkMs = int64_t{24} * 3600 * 1000;

int64_t nanoseconds(const timespec& t) { return t.tv_sec * 1'000'000'000 + t.tv_nsec; }

json::Value to_value(const Stamp& s) {
  return json::Object{{"path", s.path},           {"dev", s.state.dev},           {"inode", s.state.inode},
                      {"size", s.state.size},     {"mtime_ns", s.state.mtime_ns}, {"ctime_ns", s.state.ctime_ns},
                      {"sha256", s.sha256},       {"evidence", s.evidence},       {"level", s.level},
                      {"read_mode", s.read_mode}, {"verified_at", s.verified_at}, {"verified_ms", s.verified_ms},
                      {"tool", s.tool},           {"boot_id", s.boot_id}};
}

Result<Stamp> from_value(const json::Cursor& c) {
  Stamp s;
  const auto u64 = [&](const char* key, uint64_t& out) -> Result<void> {
    DSF_TRY(const json::Cursor member, c.at(key));
    DSF_TRY(out, member.u64());
    return {};
  };
  DSF_TRY(s.path, c.string_at("path"));
  DSF_OK(u64("dev", s.state.dev));
  DSF_OK(u64("inode", s.state.inode));
  DSF_OK(u64("size", s.state.size));
  DSF_TRY(s.state.mtime_ns, c.integer_at("mtime_ns"));
  DSF_TRY(s.state.ctime_ns, c.integer_at("ctime_ns"));
  DSF_TRY(s.sha256, c.string_at("sha256"));
  DSF_TRY(s.evidence, c.string_or("evidence", ""));
  DSF_TRY(s.level, c.string_or("level", ""));
  DSF_TRY(s.read_mode, c.string_or("read_mode", ""));
  DSF_TRY(s.verified_at, c.string_or("verified_at", ""));
  DSF_TRY(s.verified_ms, c.integer_at("verified_ms"));
  DSF_TRY(s.tool, c.string_or("tool", ""));
  DSF_TRY(s.boot_id, c.string_or("boot_id", ""));
  return s;
}

bool recorded(const FetchedFile& f, const FileState& now) {
  // The record has no ctime; the inode covers a file that was replaced by another with its time set back.
  return !f.sha256.empty() && f.size == now.size && f.mtime_ns == now.mtime_ns && f.inode == now.inode &&
         f.dev == now.dev;
}

}  // namespace

Result<FileState> file_state(const fs::path& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return fail(io::errno_error(path, "cannot stat"));
  return FileState{st.st_dev, st.st_ino, static_cast<uint64_t>(st.st_size), nanoseconds(st.st_mtim),
                   nanoseconds(st.st_ctim)};
}

bool holds(const Stamp& s, const FileState& now, int64_t now_ms, bool network_fs) {
  const int64_t written_ms = std::max(now.mtime_ns, now.ctime_ns) / 1'000'000;
  if (network_fs && now_ms - s.verified_ms > kNetworkMs) return false;
  return s.state == now && s.verified_ms - written_ms > kQuietMs;
}

bool on_network_fs(const fs::path& dir) {
  struct statfs st {};
  if (::statfs(dir.c_str(), &st) != 0) return false;
  constexpr std::array<uint32_t, 5> kMagic{0x6969, 0xff534d42, 0xfe534d42, 0x517b,
                                           0x65735546};  // NFS, CIFS, SMB2, SMB, FUSE
  return std::find(kMagic.begin(), kMagic.end(), static_cast<uint32_t>(st.f_type)) != kMagic.end();
}

Result<Stamps> load_stamps(const fs::path& dir) {
  const fs::path path = dir / kStampsPath;
  std::error_code ec;
  if (!fs::exists(path, ec)) return Stamps{};
  DSF_TRY(const Record record, load_record(path, kStampsSchema));
  Stamps out;
  for (const json::Value& item : record.items) {
    DSF_TRY(Stamp s, from_value(json::Cursor(item, path.string())));
    std::string key = s.path;
    out.emplace(std::move(key), std::move(s));
  }
  return out;
}

Result<void> write_stamps(const fs::path& dir, const Stamps& stamps) {
  Record record;
  record.schema = kStampsSchema;
  record.created_by = stamps.empty() ? "dsf-verify" : stamps.begin()->second.tool;
  for (const auto& [path, stamp] : stamps) record.items.push_back(to_value(stamp));
  const fs::path path = dir / kStampsPath;
  DSF_OK(io::make_dirs(path.parent_path()));
  return io::write_file_atomic(path, write(record));
}

std::map<std::string, std::string> proven_files(const fs::path& dir, const std::vector<std::string>& paths) {
  const auto stamps = load_stamps(dir);
  const auto record = load_fetch_record(dir);
  const bool network = on_network_fs(dir);
  const int64_t now_ms = unix_time_ms();
  std::map<std::string, std::string> out;
  for (const std::string& path : paths) {
    const auto state = file_state(dir / path);
    if (!state) continue;
    const auto stamp = stamps ? stamps->find(path) : Stamps::const_iterator{};
    if (stamps && stamp != stamps->end() && holds(stamp->second, *state, now_ms, network))
      out[path] = stamp->second.sha256;
    if (!record) continue;
    for (const FetchedFile& f : record->files)
      if (f.path == path && recorded(f, *state)) out.emplace(path, f.sha256);
  }
  return out;
}

std::vector<std::string> unproven_files(const fs::path& dir, const std::vector<std::string>& paths) {
  const auto proven = proven_files(dir, paths);
  std::vector<std::string> out;
  std::copy_if(paths.begin(), paths.end(), std::back_inserter(out),
               [&](const std::string& p) { return !proven.contains(p); });
  return out;
}

}  // namespace dsf::manifest
