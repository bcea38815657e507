#include "tools/pack-engram/pin_check.h"

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"
#include "dsf/manifest/record.h"

namespace dsf::pack_engram {
namespace {

Unexpected other_revision(const std::filesystem::path& file, std::string what) {
  return fail(Code::kContent, file.string(), std::move(what),
              "fetch the pinned revision, or pass the pin that belongs to this folder", "revision");
}

const manifest::PinFile* find(const manifest::Deployment& deployment, const std::string& name) {
  for (const auto& placed : deployment.pins)
    if (const auto* f = placed.pin.find(name)) return f;
  return nullptr;
}

Result<void> check_header(const std::filesystem::path& shard, const manifest::SafetensorsFacts& facts) {
  if (facts.header_bytes < 8 || facts.header_bytes > (uint64_t{1} << 27))
    return other_revision(shard, "the pinned header size makes no sense");
  DSF_TRY(const io::Fd fd, io::open_read(shard));
  std::vector<std::byte> header(facts.header_bytes);
  DSF_OK(io::read_at(fd, 0, header));
  if (codec::sha256(header).hex() != facts.header_sha256)
    return other_revision(shard, "its safetensors header is not the pinned one");
  return {};
}

}  // namespace

Result<void> check_against_pin(const Plan& plan, const Source& source) {
  DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(plan.pin));
  const auto digest = [&](const std::filesystem::path& file, const std::string& have) -> Result<void> {
    const auto* want = find(deployment, file.filename().string());
    if (want == nullptr || want->sha256.empty() || want->sha256 == have) return {};
    return other_revision(
        file, "sha256 is " + have.substr(0, 12) + "..., the pin says " + want->sha256.substr(0, 12) + "...");
  };
  DSF_OK(digest(plan.config, source.config_sha256));
  if (!source.index_sha256.empty()) DSF_OK(digest(plan.source / "model.safetensors.index.json", source.index_sha256));

  const auto fetched = manifest::load_fetch_record(plan.source);
  for (const auto& shard : source.rows->files()) {
    const auto* want = find(deployment, shard.filename().string());
    if (want == nullptr)
      return fail(Code::kUsage, plan.pin.string(),
                  "does not name " + shard.filename().string() + ", which holds Engram tables",
                  "pass the pin of the release", "pin");
    DSF_TRY(const uint64_t size, io::file_size(shard));
    if (want->size && *want->size != size)
      return other_revision(shard,
                            "is " + std::to_string(size) + " bytes, the pin says " + std::to_string(*want->size));
    if (want->safetensors && !want->safetensors->header_sha256.empty()) DSF_OK(check_header(shard, *want->safetensors));
    if (fetched)
      for (const auto& f : fetched->files)
        if (f.path == want->path) DSF_OK(digest(shard, f.sha256));
  }
  return {};
}

}  // namespace dsf::pack_engram
