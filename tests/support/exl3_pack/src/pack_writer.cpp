#include "dsf/exl3_pack/pack_writer.h"

#include "dsf/base/check.h"
#include "dsf/base/random.h"
#include "dsf/io/file.h"

namespace dsf::exl3_pack {
namespace {

using safetensors::TensorData;
using tensor::DType;

bool stored_as_f16(const std::string& name) {
  return name.ends_with("ffn.gate.weight") || name.ends_with("indexer.weights_proj.weight");
}

}  // namespace

uint64_t stream_seed(std::string_view name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash ^ SplitMix64(seed).next();
}

void PackWriter::place(int shard, std::vector<TensorData> tensors) {
  if (shard == kNextShard) {
    folder_.append(std::move(tensors));
  } else {
    folder_.add(shard, std::move(tensors));
  }
}

void PackWriter::remember(const std::string& module, const std::vector<TensorData>& parts, int width) {
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
  storage_.emplace_back(module, std::move(entry));
}

Result<void> PackWriter::add_matrix(int shard, const std::string& name, std::span<const float> values, int64_t out,
                                    int64_t in) {
  const exl3::QuantizeOptions options = choose_(name);
  DSF_CHECK(options.codebook == exl3::Codebook::kMul1, "tensor_storage names the mul1 codebook");
  auto made = exl3::quantize(values, out, in, options);
  if (!made) {
    made.error().subject = name;
    return fail(made.error());
  }
  if (report_) report_(name, made->view(), values);
  std::vector<TensorData> parts = exl3::to_tensors(*made, name);
  remember(name, parts, options.bits);
  bits_ += options.bits * out * in;
  weights_ += out * in;
  if (name == "head") head_bits_ = options.bits;
  place(shard, std::move(parts));
  return {};
}

Result<void> PackWriter::add_linear(int shard, const model::Config& config, const model::Weight& w,
                                    std::span<const float> values) {
  if (!w.name.ends_with(".attn.wo_a")) return add_matrix(shard, w.name, values, w.shape[0], w.shape[1]);
  for (int64_t g = 0; g < config.o_groups; ++g) {
    const auto n = static_cast<size_t>(config.o_lora_rank * w.shape[1]);
    DSF_OK(add_matrix(shard, w.name + ".slice." + std::to_string(g), values.subspan(static_cast<size_t>(g) * n, n),
                      config.o_lora_rank, w.shape[1]));
  }
  return {};
}

Result<void> PackWriter::add_plain(int shard, const std::string& module, TensorData native) {
  if (stored_as_f16(native.name)) {
    const safetensors::TensorInfo info{.name = native.name, .dtype = native.dtype, .shape = native.shape};
    DSF_TRY(const std::vector<float> values, safetensors::to_f32({&info, native.bytes}));
    native = {native.name, DType::kF16, native.shape, safetensors::from_f32(DType::kF16, values)};
  }
  std::vector<TensorData> parts;
  parts.push_back(std::move(native));
  remember(module, parts, 0);
  place(shard, std::move(parts));
  return {};
}

Result<void> PackWriter::finish(json::Value config) {
  DSF_CHECK(head_bits_ > 0, "a pack has a head");
  const int64_t hundredths = (100 * bits_ + weights_ / 2) / weights_;
  json::Value q =
      json::Object{{"quant_method", "exl3"},  {"version", "0.1.0"},    {"bits", static_cast<double>(hundredths) / 100},
                   {"head_bits", head_bits_}, {"out_scales", "never"}, {"codebook", "mul1"}};
  json::Value marked = q;
  if (const json::Value* native = config.find("quantization_config"))
    marked.set("original_quantization_config", json::Value(*native));
  config.set("quantization_config", std::move(marked));
  DSF_OK(io::write_file_atomic(folder_.dir() / "config.json", json::dump(config, json::Style::kPretty) + "\n"));
  q.set("tensor_storage", std::move(storage_));
  DSF_OK(io::write_file_atomic(folder_.dir() / "quantization_config.json", json::dump(q) + "\n"));
  return folder_.finish();
}

}  // namespace dsf::exl3_pack
