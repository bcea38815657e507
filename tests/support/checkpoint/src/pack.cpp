// The made model as an EXL3 pack, and the copy of a pack in plain floats.
#include <algorithm>

#include "dsf/base/check.h"
#include "dsf/exl3/decode.h"
#include "dsf/exl3_pack/pack_writer.h"
#include "dsf/io/file.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "encode.h"
#include "plan.h"
#include "small_files.h"
#include "weights.h"

namespace dsf::made_checkpoint {
namespace {

using exl3_pack::FolderWriter;
using exl3_pack::PackWriter;
using json::Value;
using model::Weight;
using safetensors::TensorData;
using tensor::DType;

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

Result<void> add_weight(PackWriter& writer, const model::Config& c, const Weight& w, uint64_t seed) {
  std::vector<float> values = random_values(w, c, seed);
  std::vector<TensorData> native = encode(w, values);  // values become what the native form decodes to
  const int shard = std::min(shard_of(c, w.name), kBodyShards);
  if (w.packed_in_exl3) return writer.add_linear(shard, c, w, values);
  DSF_CHECK(native.size() == 1, "an unpacked weight is one plain tensor");
  return writer.add_plain(shard, w.name, std::move(native[0]));
}

}  // namespace

int packed_bits(std::string_view name) {
  if (name == "head") return 6;
  if (name.starts_with("mtp.")) return 4;
  if (has(name, "engram.wkv")) return name.starts_with("layers.1.") ? 5 : 4;
  if (has(name, "indexer.wk")) return 8;
  if (has(name, "compressor.")) return 7;
  if (has(name, "attn.")) return name == "layers.0.attn.wq_a" || name == "layers.0.attn.wkv" ? 6 : 5;
  if (has(name, "shared_experts.")) return name.starts_with("layers.4.") && !name.ends_with("w2") ? 4 : 5;
  if (name.starts_with("layers.3.")) return 2;
  return name.starts_with("layers.5.") && name.ends_with("w2") ? 4 : 3;
}

Result<void> write_exl3(const std::filesystem::path& dir, const Options& options) {
  DSF_TRY(const model::Config c, config(options));
  DSF_TRY(FolderWriter folder, FolderWriter::create(dir));
  PackWriter writer(std::move(folder), [&](const std::string& name) {
    return exl3::QuantizeOptions{
        .bits = packed_bits(name), .seed = exl3_pack::stream_seed(name, options.seed), .threads = options.threads};
  });
  for (const Weight& w : model::all_weights(c)) {
    if (w.kind != model::WeightKind::kTableFp8) DSF_OK(add_weight(writer, c, w, options.seed));
  }
  DSF_OK(write_small_files(dir));
  DSF_TRY(Value native, json::parse(config_json(options), "config.json of the made model"));
  return writer.finish(std::move(native));
}

namespace {

TensorData copy_of(const safetensors::TensorView& view) {
  return {view.info->name, view.dtype(), view.shape(), {view.bytes.begin(), view.bytes.end()}};
}

Result<TensorData> decoded(const safetensors::Checkpoint& pack, const std::string& name,
                           std::span<const std::string> parts) {
  std::vector<float> values;
  int64_t out = 0, in = 0;
  for (const std::string& part : parts) {
    DSF_TRY(const exl3::PackedMatrix m, exl3::open(pack, part));
    values.resize(values.size() + static_cast<size_t>(m.out * m.in));
    exl3::dequantise(m, std::span(values).last(static_cast<size_t>(m.out * m.in)));
    out += m.out;
    in = m.in;
  }
  return TensorData{name + ".weight", DType::kF32, {out, in}, safetensors::from_f32(DType::kF32, values)};
}

}  // namespace

Result<void> write_dequantised(const std::filesystem::path& from, const std::filesystem::path& dir) {
  DSF_TRY(const safetensors::Checkpoint pack, safetensors::Checkpoint::open(from));
  DSF_TRY(const model::Config c, model::load_config(from / "config.json"));
  DSF_TRY(FolderWriter folder, FolderWriter::create(dir));
  for (const Weight& w : model::all_weights(c)) {
    const int shard = std::min(shard_of(c, w.name), kBodyShards);
    if (w.packed_in_exl3) {
      std::vector<std::string> parts{w.name};
      if (w.name.ends_with(".attn.wo_a")) {
        parts.clear();
        for (int64_t g = 0; g < c.o_groups; ++g) parts.push_back(w.name + ".slice." + std::to_string(g));
      }
      DSF_TRY(TensorData t, decoded(pack, w.name, parts));
      folder.add(shard, {std::move(t)});
    } else if (const std::string name = w.kind == model::WeightKind::kPlain ? w.name : w.name + ".weight";
               pack.contains(name)) {
      DSF_TRY(const safetensors::TensorView view, pack.tensor(name));
      folder.add(shard, {copy_of(view)});
    }
  }
  DSF_TRY(const std::string config_text, io::read_text(from / "config.json"));
  DSF_TRY(Value root, json::parse(config_text, (from / "config.json").string()));
  // Nothing in the copy is quantised any more.
  std::erase_if(root.as_object(), [](const json::Member& m) { return m.first == "quantization_config"; });
  DSF_OK(write_small_files(dir));
  DSF_OK(io::write_file_atomic(dir / "config.json", json::dump(root, json::Style::kPretty) + "\n"));
  return folder.finish();
}

}  // namespace dsf::made_checkpoint
