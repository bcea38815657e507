#include "repository.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::loopback_hub {
namespace {

// What the public Hub puts into .gitattributes of a new model repository, as far as it matters here.
bool lfs_suffix(std::string_view path) {
  for (const std::string_view s : {".safetensors", ".bin", ".gguf", ".pt", ".zst", ".npz"}) {
    if (path.ends_with(s)) return true;
  }
  return false;
}

Result<RepoFile> scan_file(const std::filesystem::path& dir, const std::string& path, uint64_t lfs_from_bytes) {
  RepoFile f;
  f.path = path;
  DSF_TRY(f.size, io::file_size(dir / path));
  DSF_TRY(const codec::Digest digest, codec::sha256_file(dir / path));
  f.sha256 = digest.hex();
  f.lfs = lfs_suffix(path) || f.size >= lfs_from_bytes;
  if (f.lfs) {
    f.git_sha1 = codec::git_blob_sha1(as_bytes(lfs_pointer(f)));
  } else {
    DSF_TRY(f.git_sha1, codec::git_blob_sha1_file(dir / path));
  }
  return f;
}

Result<void> read_settings(Repository& repo) {
  auto text = io::read_text(repo.dir / ".hub.json", kMiB);
  if (!text) return text.error().code == Code::kMissing ? Result<void>() : fail(text.error());
  DSF_TRY(const json::Value value, json::parse(*text, ".hub.json"));
  const json::Cursor root(value, ".hub.json");
  DSF_TRY(repo.is_private, root.boolean_or("private", false));
  DSF_TRY(repo.disabled, root.boolean_or("disabled", false));
  DSF_TRY(repo.gated, root.string_or("gated", ""));
  if (const auto refs = root.maybe("refs"); refs && refs->value().is_object()) {
    for (const auto& [name, kind] : refs->value().as_object())
      repo.refs[name] = kind.is_string() ? kind.as_string() : "branch";
  }
  return {};
}

}  // namespace

std::string lfs_pointer(const RepoFile& f) {
  return "version https://git-lfs.github.com/spec/v1\noid sha256:" + f.sha256 + "\nsize " + std::to_string(f.size) +
         "\n";
}

const RepoFile* Repository::find(std::string_view path) const {
  const auto it = std::lower_bound(files.begin(), files.end(), path,
                                   [](const RepoFile& f, std::string_view p) { return f.path < p; });
  return it != files.end() && it->path == path ? &*it : nullptr;
}

bool Repository::knows(const std::string& revision) const { return revision == commit || refs.contains(revision); }

Result<Repository> scan_repository(const std::filesystem::path& root, const std::string& id, uint64_t lfs_from_bytes) {
  Repository repo;
  repo.id = id;
  repo.dir = root / id;
  std::error_code ignored;
  if (id.empty() || id.find("..") != std::string::npos || !std::filesystem::is_directory(repo.dir, ignored)) {
    return fail(Code::kMissing, id, "no such repository");
  }
  repo.refs["main"] = "branch";
  DSF_OK(read_settings(repo));
  DSF_TRY(const auto paths, io::list_files(repo.dir));
  std::string listing;
  for (const std::string& path : paths) {
    if (path == ".hub.json" || path.starts_with(".cache/") || path.starts_with(".git/")) continue;
    DSF_TRY(RepoFile f, scan_file(repo.dir, path, lfs_from_bytes));
    listing += f.git_sha1 + " " + path + "\n";
    repo.files.push_back(std::move(f));
  }
  repo.commit = codec::git_blob_sha1(as_bytes(listing));
  return repo;
}

}  // namespace dsf::loopback_hub
