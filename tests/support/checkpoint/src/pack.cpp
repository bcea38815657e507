// The made model as an EXL3 pack, and the copy of a pack in plain floats.
#include <algorithm>

#include "dsf/base/check.h"
#include "dsf/exl3/quantize.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "encode.h"
#include "folder.h"
#include "plan.h"
#include "weights.h"

namespace dsf::made_checkpoint {
namespace {

using json::Value;
using model::Weight;
using safetensors::TensorData;
using tensor::DType;

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

struct PackWriter {
  const Options& options;
  FolderWriter folder;
  json::Object storage;  // tensor_storage of quantization_config.json
  int64_t bits = 0, weights = 0;

  void remember(const std::string& module, const std::vector<TensorData>& parts, int width) {
    json::Object stored;
    for (const TensorData& t : parts) {
      stored.emplace_back(t.name, json::Object{{"shape", json::Array(t.shape.begin(), t.shape.end())},
                                               {"dtype", tensor::dtype_name(t.dtype)}});
    }
    json::Object entry{{"stored_tensors", std::move(stored)}};
    if (width > 0) {
      entry.emplace_back("quant_format", "exl3");
      entry.emplace_back("bits_per_weight", width);
      entry.emplace_back("mul1_multiplier", exl3::kMul1Multiplier);
    }
    storage.emplace_back(module, std::move(entry));
  }

  Result<void> pack(int shard, const std::string& name, std::span<const float> values, int64_t out, int64_t in) {
    const int width = packed_bits(name);
    DSF_TRY(const exl3::Matrix m,
            exl3::quantize(values, out, in,
                           {width, exl3::Codebook::kMul1, stream_seed(name, options.seed), options.threads}));
    std::vector<TensorData> parts = exl3::to_tensors(m, name);
    remember(name, parts, width);
    bits += width * out * in;
    weights += out * in;
    folder.add(shard, std::move(parts));
    return {};
  }
};

// fp16 where the published packs have it: router and indexer weights.
DType pack_dtype(const TensorData& t) {
  return t.name.ends_with("ffn.gate.weight") || t.name.ends_with("indexer.weights_proj.weight") ? DType::kF16 : t.dtype;
}

Result<void> add_weight(PackWriter& writer, const model::Config& c, const Weight& w) {
  std::vector<float> values = random_values(w, c, writer.options.seed);
  std::vector<TensorData> native = encode(w, values);
  const int shard = std::min(shard_of(c, w.name), kBodyShards);
  if (!w.packed_in_exl3) {
    DSF_CHECK(native.size() == 1, "an unpacked weight is one plain tensor");
    if (const DType dtype = pack_dtype(native[0]); dtype != native[0].dtype)
      native[0] = {native[0].name, dtype, w.shape, encode_plain(dtype, values)};
    writer.remember(w.name, native, 0);
    writer.folder.add(shard, std::move(native));
    return {};
  }
  if (!w.name.ends_with(".attn.wo_a")) return writer.pack(shard, w.name, values, w.shape[0], w.shape[1]);
  for (int64_t g = 0; g < c.o_groups; ++g) {
    const auto n = static_cast<size_t>(c.o_lora_rank * w.shape[1]);
    DSF_OK(writer.pack(shard, w.name + ".slice." + std::to_string(g),
                       std::span(values).subspan(static_cast<size_t>(g) * n, n), c.o_lora_rank, w.shape[1]));
  }
  return {};
}

// The native config with the pack's quantization_config, which keeps the old one.
Result<std::string> pack_config(const Options& options, const Value& quantization) {
  DSF_TRY(Value root, json::parse(config_json(options), "config.json of the made model"));
  Value q = quantization;
  q.set("original_quantization_config", *root.find("quantization_config"));
  root.set("quantization_config", std::move(q));
  return json::dump(root, json::Style::kPretty) + "\n";
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
  DSF_TRY(FolderWriter folder, FolderWriter::create(dir, kBodyShards));
  PackWriter writer{options, std::move(folder), {}};
  for (const Weight& w : all_weights(c)) {
    if (w.kind != model::WeightKind::kTableFp8) DSF_OK(add_weight(writer, c, w));
  }
  const int64_t hundredths = (100 * writer.bits + writer.weights / 2) / writer.weights;
  Value q = json::Object{
      {"quant_method", "exl3"},           {"version", "0.1.0"},    {"bits", static_cast<double>(hundredths) / 100},
      {"head_bits", packed_bits("head")}, {"out_scales", "never"}, {"codebook", "mul1"}};
  DSF_TRY(const std::string config_text, pack_config(options, q));
  DSF_OK(write_small_files(dir, config_text));
  q.set("tensor_storage", std::move(writer.storage));
  DSF_OK(io::write_file_atomic(dir / "quantization_config.json", json::dump(q, json::Style::kPretty) + "\n"));
  return writer.folder.finish();
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
  return TensorData{name + ".weight", DType::kF32, {out, in}, encode_plain(DType::kF32, values)};
}

}  // namespace

Result<void> write_dequantised(const std::filesystem::path& from, const std::filesystem::path& dir) {
  DSF_TRY(const safetensors::Checkpoint pack, safetensors::Checkpoint::open(from));
  DSF_TRY(const model::Config c, model::load_config(from / "config.json"));
  DSF_TRY(FolderWriter folder, FolderWriter::create(dir, kBodyShards));
  for (const Weight& w : all_weights(c)) {
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
  DSF_OK(write_small_files(dir, json::dump(root, json::Style::kPretty) + "\n"));
  return folder.finish();
}

}  // namespace dsf::made_checkpoint
