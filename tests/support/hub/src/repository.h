#pragma once
// A folder seen as a repository: files, digests, a commit that names the whole content. Immutable once scanned.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::loopback_hub {

struct RepoFile {
  std::string path;
  uint64_t size = 0;
  std::string git_sha1;  // of the content, or of the LFS pointer
  std::string sha256;
  bool lfs = false;
  std::string etag() const { return lfs ? sha256 : git_sha1; }
};

struct Repository {
  std::string id;  // "org/name"
  std::filesystem::path dir;
  std::string commit;
  std::vector<RepoFile> files;  // sorted by path
  bool is_private = false, disabled = false;
  std::string gated;                        // "", "auto", "manual"
  std::map<std::string, std::string> refs;  // name -> "branch", "tag" or "pr"; all point to the commit

  const RepoFile* find(std::string_view path) const;
  bool knows(const std::string& revision) const;
};

// Errors: kMissing when the folder is not there.
Result<Repository> scan_repository(const std::filesystem::path& root, const std::string& id, uint64_t lfs_from_bytes);
std::string lfs_pointer(const RepoFile& file);

}  // namespace dsf::loopback_hub
