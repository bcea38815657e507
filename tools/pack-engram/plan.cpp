#include "tools/pack-engram/plan.h"

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/stamps.h"
#include "dsf/model/engram.h"

namespace dsf::pack_engram {
namespace {

// A part file is gone on with only while nothing that decides its bytes has been touched.
Result<std::string> identity_of(const Source& source) {
  std::string text = source.config_sha256 + " " + source.index_sha256 + "\n";
  for (const auto& shard : source.rows->files()) {
    DSF_TRY(const manifest::FileState s, manifest::file_state(shard));
    for (const auto& part : {std::to_string(s.dev), std::to_string(s.inode), std::to_string(s.size),
                             std::to_string(s.mtime_ns), std::to_string(s.ctime_ns)})
      text += part + " ";
    text += shard.string() + "\n";
  }
  return codec::sha256(text).hex();
}

}  // namespace

Result<Source> open_source(const Plan& plan) {
  DSF_TRY(const std::string text, io::read_text(plan.config, uint64_t{16} << 20));
  auto config = model::parse_config(text, plan.config.string());
  if (!config) {
    Error e = std::move(config).error();
    e.code = Code::kUsage;  // the configuration decides what is done here: a wrong one is a wrong command
    return fail(std::move(e));
  }
  auto layout = engram::Layout::create(model::engram_spec(*config));
  if (!layout) {
    Error e = std::move(layout).error();
    e.code = Code::kUsage;
    e.subject = plan.config.string();
    return fail(std::move(e));
  }
  Source out{std::move(*layout), nullptr, codec::sha256(text).hex(), "", ""};
  DSF_TRY(out.rows, engram::CheckpointRows::open(plan.source, out.layout));
  const auto index = plan.source / "model.safetensors.index.json";
  std::error_code ec;
  if (std::filesystem::exists(index, ec)) {
    DSF_TRY(const codec::Digest digest, codec::sha256_file(index));
    out.index_sha256 = digest.hex();
  }
  DSF_TRY(out.identity, identity_of(out));
  return out;
}

Result<std::vector<PackFile>> files_of(const Plan& plan, const engram::Layout& layout) {
  std::vector<PackFile> out;
  for (const int rank : plan.ranks)
    for (size_t l = 0; l < layout.layers().size(); ++l) {
      DSF_TRY(const engram::PackedHeader header, engram::expected_header(layout, l, rank, plan.world));
      out.push_back(
          {l, rank, plan.packs / engram::packed_file_name(layout.layers()[l].layer_id, rank, plan.world), header});
    }
  return out;
}

}  // namespace dsf::pack_engram
