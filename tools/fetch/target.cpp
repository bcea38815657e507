#include "tools/fetch/target.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/codec/sha256.h"
#include "dsf/json/json.h"

namespace dsf::fetch {
namespace {

constexpr std::string_view kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag. See "
    "https://bford.info/cachedir/\n";

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The public client has no metadata for names that leave no room for its ".metadata".
bool client_can_name(const std::string& path) { return base_name(path).size() + 9 <= 255; }

// Temporary and rename without a sync: for bookkeeping whose loss in a crash costs a second look, never a wrong claim.
Result<void> write_advisory(const std::filesystem::path& path, std::string_view content) {
  // Short, since the name itself may be as long as names can be; with the process id, since two processes may be at
  // work where locks are fake.
  static std::atomic<unsigned> serial{0};
  const std::filesystem::path temporary =
      path.parent_path() / ("." + std::to_string(::getpid()) + "." + std::to_string(serial++) + ".tmp");
  DSF_TRY(io::Fd fd, io::open_write(temporary));
  DSF_OK(io::write_all(fd, as_bytes(content)));
  DSF_OK(fd.close());
  return io::rename_file(temporary, path);
}

Result<void> write_once(const std::filesystem::path& path, std::string_view content) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? Result<void>() : write_advisory(path, content);
}

}  // namespace

std::string part_id(const std::string& path, const std::string& etag) {
  return codec::sha256(path).hex().substr(0, 24) + "-" + etag.substr(0, 16);
}

std::filesystem::path Target::existing_ancestor() const {
  std::error_code ignored;
  // A relative "model" has no parent to look at.
  std::filesystem::path at = std::filesystem::absolute(dir_, ignored);
  while (!std::filesystem::exists(at, ignored) && at.has_parent_path() && at != at.parent_path()) at = at.parent_path();
  return at;
}

bool Target::writable() const { return ::access(existing_ancestor().c_str(), W_OK | X_OK) == 0; }

bool Target::case_insensitive() const {
  std::error_code ignored;
  const auto probe = state() / "CaSe";
  if (!write_once(probe, "")) return false;
  const bool same = std::filesystem::exists(state() / "case", ignored);
  std::filesystem::remove(probe, ignored);
  return same;
}

bool Target::on_network() const {
  struct statfs fs {};
  if (::statfs(existing_ancestor().c_str(), &fs) != 0) return false;
  switch (static_cast<uint32_t>(fs.f_type)) {
    case 0x6969:      // NFS
    case 0x517b:      // SMB
    case 0xff534d42:  // CIFS
    case 0xfe534d42:  // SMB2
    case 0x65735546:  // FUSE
    case 0x0bd00bd0:  // Lustre
    case 0x47504653:  // GPFS
      return true;
    default:
      return false;
  }
}

Result<void> Target::prepare() const {
  const auto client = dir_ / ".cache" / "huggingface";
  DSF_OK(io::make_dirs(parts()));
  DSF_OK(io::make_dirs(client / "download"));
  for (const auto& folder : {state(), client}) {
    DSF_OK(write_once(folder / "CACHEDIR.TAG", kCacheTag));
    DSF_OK(write_once(folder / ".gitignore", "*\n"));
  }
  return {};
}

Result<std::optional<io::Fd>> Target::open_folder(const std::string& path, bool make) const {
  int fd = ::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT && !make) return std::optional<io::Fd>();
  if (fd < 0) return fail(io::errno_error(dir_, "cannot open the folder"));
  io::Fd folder(fd, dir_);
  for (size_t i = 0, slash = path.find('/'); slash != std::string::npos; i = slash + 1, slash = path.find('/', i)) {
    const std::string name = path.substr(i, slash - i);
    if (make && ::mkdirat(folder.get(), name.c_str(), 0777) != 0 && errno != EEXIST) {
      return fail(io::errno_error(dir_ / path.substr(0, slash), "cannot make the folder"));
    }
    fd = ::openat(folder.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return std::optional<io::Fd>();
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR)) {
      return fail(Code::kLocal, (dir_ / path.substr(0, slash)).string(), "is not a folder, or a symbolic link",
                  "remove it, or choose another --local-dir");
    }
    if (fd < 0) return fail(io::errno_error(dir_ / path.substr(0, slash), "cannot open the folder"));
    folder = io::Fd(fd, dir_ / path.substr(0, slash));
  }
  return std::optional<io::Fd>(std::move(folder));
}

Result<std::optional<struct stat>> Target::stat_file(const std::string& path) const {
  DSF_TRY(const auto folder, open_folder(path, false));
  if (!folder) return std::optional<struct stat>();
  struct stat st {};
  if (::fstatat(folder->get(), base_name(path).c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<struct stat>();
    return fail(io::errno_error(dir_ / path, "cannot look at the file"));
  }
  return std::optional<struct stat>(st);
}

Result<io::Fd> open_part_file(const std::filesystem::path& path, uint64_t size, bool reserve) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return fail(io::errno_error(path, "cannot create"));
  io::Fd part(fd, path);
  DSF_TRY(const uint64_t now, io::file_size(part));
  if (now == size) return part;
  if (::ftruncate(fd, 0) != 0) return fail(io::errno_error(path, "cannot truncate"));
  if (reserve) DSF_OK(io::preallocate(part, size));
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return fail(io::errno_error(path, "cannot set the size"));
  return part;
}

mode_t default_mode() {
  static const mode_t mask = [] {
    const mode_t m = ::umask(0);
    ::umask(m);
    return m;
  }();
  return 0666 & ~mask;
}

Result<io::Fd> Target::open_part(const std::string& id, uint64_t size) const {
  return open_part_file(parts() / (id + ".part"), size, true);
}

Result<void> Target::commit(const std::string& id, const std::string& path, const std::string& commit_id,
                            const std::string& etag) const {
  DSF_TRY(const auto folder, open_folder(path, true));
  if (!folder) return fail(Code::kLocal, (dir_ / path).string(), "its folder vanished", "run the command again");
  const auto part = parts() / (id + ".part");
  // The public client may be at work on the same file: its lock covers the rename and the metadata, not the download.
  io::Fd lock;
  if (client_can_name(path)) {
    const auto lock_path = dir_ / ".cache" / "huggingface" / "download" / (path + ".lock");
    DSF_OK(io::make_dirs(lock_path.parent_path()));
    lock = io::Fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664), lock_path);
    if (!lock.valid()) return fail(io::errno_error(lock_path, "cannot open"));
    ::flock(lock.get(), LOCK_EX);
  }
  if (::renameat(AT_FDCWD, part.c_str(), folder->get(), base_name(path).c_str()) != 0)
    return fail(io::errno_error(dir_ / path, "cannot rename to"));
  DSF_OK(io::sync(*folder));
  return write_metadata(path, commit_id, etag);
}

Result<void> Target::write_metadata(const std::string& path, const std::string& commit_id,
                                    const std::string& etag) const {
  if (!client_can_name(path)) return {};
  DSF_TRY(const auto st, stat_file(path));
  const double mtime =
      st ? static_cast<double>(st->st_mtim.tv_sec) + static_cast<double>(st->st_mtim.tv_nsec) * 1e-9 : 0;
  std::array<char, 32> when{};
  std::snprintf(when.data(), when.size(), "%.6f", std::max(static_cast<double>(unix_time_ms()) / 1000, mtime));
  const auto file = dir_ / ".cache" / "huggingface" / "download" / (path + ".metadata");
  DSF_OK(io::make_dirs(file.parent_path()));
  return write_advisory(file, commit_id + "\n" + etag + "\n" + when.data() + "\n");
}

Result<void> Target::set_aside(const std::string& path) const {
  const auto to = state() / "replaced" / (path + "." + std::to_string(unix_time_ms()));
  DSF_OK(io::make_dirs(to.parent_path()));
  return io::rename_file(dir_ / path, to);
}

Result<void> Target::write_tree(const std::string& commit_id, const std::vector<hub::Entry>& entries) const {
  json::Value files = json::Value::object();
  for (const hub::Entry& e : entries) {
    json::Value v = json::Value::object();
    v.set("size", e.size);
    v.set("blob_id", e.lfs ? e.pointer_git_sha1 : e.git_sha1);
    v.set("lfs_sha256", e.lfs ? json::Value(e.sha256) : json::Value());
    v.set("lfs_size", e.lfs ? json::Value(e.size) : json::Value());
    v.set("xet_hash", e.xet_hash.empty() ? json::Value() : json::Value(e.xet_hash));
    files.as_object().emplace_back(e.path, std::move(v));  // sorted and unique already
  }
  json::Value tree = json::Value::object();
  tree.set("format_version", 1);
  tree.set("files", std::move(files));
  const auto path = dir_ / ".cache" / "huggingface" / "trees" / (commit_id + ".json");
  DSF_OK(io::make_dirs(path.parent_path()));
  return write_advisory(path, json::dump(tree, json::Style::kPython));
}

}  // namespace dsf::fetch
