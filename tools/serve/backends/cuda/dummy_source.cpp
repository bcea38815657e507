#include "tools/serve/backends/cuda/dummy_source.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "dsf/base/random.h"
#include "tools/serve/backends/cuda/launch.h"
#include "tools/serve/backends/ops/random_fill/random_fill.h"

namespace dsf::serve::cuda {
namespace {

using ops::FillType;

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

int layer_of(std::string_view name) {
  int layer = -1;
  if (name.starts_with("layers.")) std::from_chars(name.data() + 7, name.data() + name.size(), layer);
  return layer;
}

ops::CudaStream raw(const gpu::Stream& s) { return static_cast<ops::CudaStream>(s.handle()); }

FillType type_of(WeightForm form) {
  switch (form) {
    case WeightForm::kBf16: return FillType::kBf16;
    case WeightForm::kF16: return FillType::kF16;
    default: return FillType::kF32;
  }
}

// sqrt(3): half width of a uniform distribution of unit variance.
constexpr float kHalfWidth = 1.7320508f;

}  // namespace

int published_bits(const std::string& name) {
  const int layer = layer_of(name);
  if (name == "head") return 6;
  if (layer < 0 || has(name, "ffn.gate") || has(name, "weights_proj")) return 0;
  if (has(name, ".shared_experts.")) return layer <= 10 || layer >= 30 ? 5 : layer == 29 && name.ends_with(".w2") ? 5 : 4;
  if (has(name, ".experts.")) return layer >= 18 && layer <= 22 ? 2 : 3;
  if (has(name, "engram.wkv")) return layer < 8 ? 5 : 4;
  if (has(name, "indexer.wk")) return 8;
  return layer == 0 && (name.ends_with("wq_a") || name.ends_with("attn.wkv")) ? 6 : 5;
}

Result<std::unique_ptr<DummySource>> DummySource::open(const model::Config& config, uint64_t seed) {
  std::unique_ptr<DummySource> out(new DummySource(config, seed));
  DSF_TRY(out->stream_, gpu::Stream::create());
  return out;
}

uint64_t DummySource::seed_of(const std::string& name) const {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return SplitMix64(hash ^ seed_).next();
}

Result<StoredLinear> DummySource::describe(const std::string& name, int64_t out, int64_t in) {
  const int bits = out % 128 == 0 && in % 128 == 0 ? published_bits(name) : 0;
  if (bits != 0) return StoredLinear{WeightForm::kExl3, bits};
  const bool half = has(name, "ffn.gate") || has(name, "weights_proj");
  return StoredLinear{half ? WeightForm::kF16 : WeightForm::kBf16, 0};
}

bool DummySource::sliced(const std::string& name) {
  return config_.o_lora_rank % 128 == 0 && (config_.num_attention_heads * config_.head_dim / config_.o_groups) % 128 == 0 && has(name, "wo_a");
}

Result<void> DummySource::fill_dense(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, float scale, void* dense) {
  const float width = name == "embed" ? kHalfWidth : scale * kHalfWidth / std::sqrt(static_cast<float>(whole.in));
  return ops::random_fill_cuda({.to = dense, .n = static_cast<size_t>(part.out() * part.in()), .type = type_of(stored.form), .low = -width, .high = width, .seed = seed_of(name)}, raw(stream_));
}

Result<void> DummySource::fill_exl3(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, void* lanes, uint16_t* suh,
                                    uint16_t* svh) {
  const int64_t out = part.out(), in = part.in();
  const uint64_t seed = seed_of(name);
  // Any bits are a valid path, with weights of unit variance: the scales make rows of the size of their input.
  DSF_OK(ops::random_fill_cuda({.to = lanes, .n = static_cast<size_t>(out * in / 32 * stored.bits), .type = FillType::kBits, .seed = seed}, raw(stream_)));
  const float unit = 1.0f / std::sqrt(static_cast<float>(whole.in));
  DSF_OK(ops::random_fill_cuda({.to = suh, .n = static_cast<size_t>(in), .type = FillType::kF16, .low = unit, .high = unit, .sign = true, .seed = seed + 1}, raw(stream_)));
  return ops::random_fill_cuda({.to = svh, .n = static_cast<size_t>(out), .type = FillType::kF16, .low = 1, .high = 1, .sign = true, .seed = seed + 2}, raw(stream_));
}

Result<void> DummySource::fill_vector(const std::string& name, int64_t n, float* values) {
  float low = -0.5f, high = 0.5f;
  bool sign = false;
  if (has(name, "norm") || name.ends_with("_scale")) low = 0.5f, high = 1.5f;
  if (name.ends_with("gate.bias")) low = -0.2f, high = 0.2f;
  if (has(name, "engram.")) low = 0.5f, high = 1.5f, sign = true;
  if (name.ends_with("_fn")) high = kHalfWidth / std::sqrt(static_cast<float>(config_.hc_mult * config_.hidden_size)), low = -high;
  return ops::random_fill_cuda({.to = values, .n = static_cast<size_t>(n), .type = FillType::kF32, .low = low, .high = high, .sign = sign, .seed = seed_of(name)}, raw(stream_));
}

Result<LoadReport> DummySource::finish() {
  DSF_OK(stream_.wait());
  return LoadReport{};
}

}  // namespace dsf::serve::cuda
