#pragma once
// The folder that is filled: safe opening below it (no symbolic link is followed), the tool's own state, and the
// bookkeeping that the public client reads. Source: hub.md 2.1, 3.3, 3.11.
//
//   DIR/<path>                                     final files, only ever complete and verified
//   DIR/.cache/fetch/{LOCK,record.json,parts/}     ours
//   DIR/.cache/huggingface/download/<path>.metadata, trees/<commit>.json
//
// One Target per run; its functions may be called from several threads for different paths.
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/hub/hub.h"
#include "dsf/io/file.h"

namespace dsf::fetch {

class Target {
 public:
  explicit Target(std::filesystem::path dir) : dir_(std::move(dir)) {}
  const std::filesystem::path& dir() const { return dir_; }
  std::filesystem::path state() const { return dir_ / ".cache" / "fetch"; }
  std::filesystem::path parts() const { return state() / parts_; }
  void use_parts(std::string name) { parts_ = std::move(name); }  // before the run

  // The folder itself, or the nearest one above it that exists.
  std::filesystem::path existing_ancestor() const;
  // Whether files can be made here (in the nearest folder that exists). Writes nothing.
  bool writable() const;
  // Names that differ only in case are one file here. After prepare().
  bool case_insensitive() const;
  // NFS, SMB, FUSE and their like: locks may be fake, offset writes slow or wrong. Of the nearest folder that exists.
  bool on_network() const;

  // Makes the folders and marker files. Errors: kLocal.
  Result<void> prepare() const;
  // nullopt when absent. kLocal when a folder on the way is a symbolic link or no folder.
  Result<std::optional<struct stat>> stat_file(const std::string& path) const;
  // The open part file, created when absent. Reads and writes at offsets.
  Result<io::Fd> open_part(const std::string& id, uint64_t size) const;
  // Renames a verified part over path (folders are made), then writes the client's metadata under its lock.
  Result<void> commit(const std::string& id, const std::string& path, const std::string& commit_id,
                      const std::string& etag) const;
  Result<void> write_metadata(const std::string& path, const std::string& commit_id, const std::string& etag) const;
  // Puts an existing file aside, under .cache/fetch/replaced/.
  Result<void> set_aside(const std::string& path) const;
  Result<void> write_tree(const std::string& commit_id, const std::vector<hub::Entry>& entries) const;

 private:
  // Folder of path, opened component by component; made when wanted. nullopt: absent and not made.
  Result<std::optional<io::Fd>> open_folder(const std::string& path, bool make) const;
  std::filesystem::path dir_;
  std::string parts_ = "parts";
};

// Opens for reading and writing, created with mode 0600 when absent; another size means other content and starts empty.
// reserve: the blocks are taken at once, so that a full disk shows before the transfer.
Result<io::Fd> open_part_file(const std::filesystem::path& path, uint64_t size, bool reserve);
// 0666 without the umask: what a finished file gets.
mode_t default_mode();

// "<24 hex of the path's digest>-<16 hex of the content's>": another content never meets an old part.
std::string part_id(const std::string& path, const std::string& etag);

}  // namespace dsf::fetch
