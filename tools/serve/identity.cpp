#include "tools/serve/identity.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "dsf/manifest/stamps.h"

namespace dsf::serve {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHashAtMost = kGiB;

// Paths of the files that decide what the model computes, sorted.
Result<std::vector<std::string>> model_files(const fs::path& dir) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name == "config.json" || name == "tokenizer.json" ||
        name == "model.safetensors.index.json")
      out.push_back(name);
  }
  if (error) return fail(Code::kLocal, dir.string(), "cannot list the folder: " + error.message());
  std::sort(out.begin(), out.end());
  return out;
}

// The record's digests, when every file still has the size and time it had when it was checked.
std::map<std::string, std::string> recorded_digests(const fs::path& dir, const manifest::FetchRecord& record) {
  std::map<std::string, std::string> out;
  for (const manifest::FetchedFile& file : record.files) {
    struct stat info {};
    if (file.sha256.empty() || ::stat((dir / file.path).c_str(), &info) != 0) continue;
    const int64_t mtime_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    if (static_cast<uint64_t>(info.st_size) == file.size && mtime_ns == file.mtime_ns) out[file.path] = file.sha256;
  }
  return out;
}

}  // namespace

Result<std::vector<manifest::Input>> checkpoint_inputs(const fs::path& dir, uint64_t hash_below) {
  DSF_TRY(const std::vector<std::string> names, model_files(dir));
  std::map<std::string, std::string> digests;
  if (const auto record = manifest::load_fetch_record(dir)) digests = recorded_digests(dir, *record);
  uint64_t unknown_bytes = 0;
  for (const std::string& name : names) {
    if (digests.count(name) != 0) continue;
    DSF_TRY(const uint64_t size, io::file_size(dir / name));
    unknown_bytes += size;
  }
  std::vector<manifest::Input> out;
  for (const std::string& name : names) {
    if (digests.count(name) == 0 && (unknown_bytes < hash_below || name.ends_with(".json"))) {
      DSF_TRY(const codec::Digest digest, codec::sha256_file(dir / name));
      digests[name] = digest.hex();
    }
    out.push_back({name, digests[name]});
  }
  return out;
}

Result<std::vector<std::pair<std::string, std::string>>> checkpoint_identity(const fs::path& dir) {
  DSF_TRY(const std::vector<manifest::Input> files, checkpoint_inputs(dir, kHashAtMost));
  std::string lines;
  std::vector<std::pair<std::string, std::string>> out, parts;
  bool all = true;
  for (const manifest::Input& file : files) {
    all = all && !file.sha256.empty();
    lines += file.sha256 + "  " + file.path + "\n";
    if (file.path == "config.json") parts.emplace_back("config_sha256", file.sha256);
    if (file.path == "tokenizer.json") parts.emplace_back("tokenizer_sha256", file.sha256);
  }
  if (all) out.emplace_back("checkpoint_sha256", codec::sha256(lines).hex());
  if (const auto record = manifest::load_fetch_record(dir)) {
    out.emplace_back("repo", record->repo);
    out.emplace_back("revision", record->revision);
  }
  out.insert(out.end(), parts.begin(), parts.end());
  return out;
}

std::string unproven_weights(const fs::path& dir) {
  auto names = model_files(dir);
  if (!names) return {};
  std::erase_if(*names, [](const std::string& name) { return !name.ends_with(".safetensors"); });
  const std::vector<std::string> files = manifest::unproven_files(dir, *names);
  if (files.empty()) return {};
  return "weights not checked: " + std::to_string(files.size()) + " of " + std::to_string(names->size()) +
         " shards have no digest from after their last change; run dsf-verify";
}

}  // namespace dsf::serve
