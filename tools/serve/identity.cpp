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

Result<std::vector<std::pair<std::string, std::string>>> checkpoint_identity(const fs::path& dir) {
  DSF_TRY(const std::vector<std::string> names, model_files(dir));
  const auto record = manifest::load_fetch_record(dir);
  std::map<std::string, std::string> digests;
  if (record) digests = recorded_digests(dir, *record);
  uint64_t unknown_bytes = 0;
  for (const std::string& name : names) {
    if (digests.count(name) != 0) continue;
    DSF_TRY(const uint64_t size, io::file_size(dir / name));
    unknown_bytes += size;
  }
  const bool affordable = unknown_bytes < kHashAtMost;
  std::string lines;
  bool all = true;
  for (const std::string& name : names) {
    if (digests.count(name) == 0 && (affordable || name.ends_with(".json"))) {
      DSF_TRY(const codec::Digest digest, codec::sha256_file(dir / name));
      digests[name] = digest.hex();
    }
    if (digests.count(name) != 0) {
      lines += digests[name] + "  " + name + "\n";
    } else {
      all = false;
    }
  }
  std::vector<std::pair<std::string, std::string>> out;
  if (all) out.emplace_back("checkpoint_sha256", codec::sha256(lines).hex());
  if (record) {
    out.emplace_back("repo", record->repo);
    out.emplace_back("revision", record->revision);
  }
  for (const auto& [name, key] :
       {std::pair{"config.json", "config_sha256"}, std::pair{"tokenizer.json", "tokenizer_sha256"}}) {
    if (digests.count(name) != 0) out.emplace_back(key, digests[name]);
  }
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
