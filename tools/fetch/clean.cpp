#include "tools/fetch/clean.h"

#include <sys/stat.h>

#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/io/file.h"
#include "dsf/manifest/path.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {
namespace {

constexpr int64_t kClientAgeSeconds = 24 * 3600;

struct Left {
  std::filesystem::path path;
  uint64_t bytes = 0;  // that it takes on the disk
};

Result<void> add(const std::filesystem::path& path, int64_t older_than_s, std::vector<Left>& out) {
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return {};
  if (older_than_s > 0 && unix_time_ms() / 1000 - st.st_mtim.tv_sec < older_than_s) return {};
  out.push_back({path, static_cast<uint64_t>(st.st_blocks) * 512});
  return {};
}

// Is this file below STATE the rest of an interrupted run?
bool left_over(const std::string& name) {
  return name.starts_with("parts/") || name.starts_with("parts-") || name.starts_with("OWNER") ||
         name.ends_with(".tmp");
}

Result<std::vector<Left>> find_left(const CleanOptions& o) {
  const Target target(o.dir);
  std::vector<Left> out;
  std::error_code ignored;
  if (std::filesystem::is_directory(target.state(), ignored)) {
    DSF_TRY(const auto ours, io::list_files(target.state()));
    for (const std::string& name : ours) {
      if (name != "LOCK" && !name.starts_with("replaced/") && (o.state || left_over(name)))
        DSF_OK(add(target.state() / name, 0, out));
    }
  }
  const auto client = o.dir / ".cache" / "huggingface" / "download";
  if (std::filesystem::is_directory(client, ignored)) {
    DSF_TRY(const auto theirs, io::list_files(client));
    for (const std::string& name : theirs) {
      if (name.ends_with(".incomplete") || name.ends_with(".tmp")) DSF_OK(add(client / name, kClientAgeSeconds, out));
    }
  }
  return out;
}

}  // namespace

Result<int> run_clean(const CleanOptions& o, Events& events) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(o.dir, ignored))
    return fail(Code::kMissing, o.dir.string(), "is no folder", "name the folder that was filled");
  const auto state = Target(o.dir).state();
  std::optional<io::FileLock> lock;
  if (std::filesystem::is_directory(state, ignored)) {
    DSF_TRY(io::FileLock held, io::FileLock::acquire(state / "LOCK"));
    lock = std::move(held);
  }
  DSF_TRY(const std::vector<Left> left, find_left(o));
  uint64_t bytes = 0;
  for (const Left& l : left) {
    bytes += l.bytes;
    events.emit(o.yes ? "removed" : "found", {{"path", l.path.string()}, {"bytes", l.bytes}});
    if (!events.enabled())
      std::printf("%15llu  %s\n", static_cast<unsigned long long>(l.bytes),
                  manifest::printable(l.path.string()).c_str());
    if (o.yes) DSF_OK(io::remove_file(l.path));
  }
  if (o.yes) {
    for (const auto& e : std::filesystem::directory_iterator(state, ignored))
      if (e.path().filename().string().starts_with("parts-")) std::filesystem::remove(e.path(), ignored);
    if (o.state) {
      DSF_OK(io::remove_file(state / "LOCK"));
      std::filesystem::remove(state / "parts", ignored);
      std::filesystem::remove(state, ignored);
    }
  }
  events.emit("summary", {{"result", "ok"}, {"files", left.size()}, {"bytes", bytes}, {"removed", o.yes}});
  if (!events.enabled() && !o.quiet)
    std::printf("%zu files, %s%s\n", left.size(), format_bytes(bytes).c_str(),
                left.empty() ? ""
                : o.yes      ? " removed"
                             : "; give --yes to remove them");
  return 0;
}

}  // namespace dsf::fetch
