#include "weights.h"

#include <cmath>
#include <string_view>

#include "dsf/base/random.h"
#include "dsf/exl3_pack/pack_writer.h"

namespace dsf::made_checkpoint {
namespace {

enum class Shape { kNormal, kPositive, kSigned };
struct Rule {
  Shape shape;
  double size;  // standard deviation of kNormal
};

// Sum of twelve uniforms: normal enough, no library logarithm whose last bit differs between machines, and bounded at
// six sigma.
double normal(SplitMix64& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

double gain(std::string_view name) {
  if (name.ends_with(".wo_b")) return 1.5;
  if (name.ends_with(".w2")) return 0.5;
  if (name == "head") return 2;
  return 1;
}

// Norm weights away from 1, sinks, biases and mixes away from 0: a reader that forgets one of them must be seen.
Rule rule(const model::Weight& w, const model::Config& config) {
  const std::string_view name = w.name;
  if (w.kind == model::WeightKind::kTableFp8) return {Shape::kNormal, 1};
  if (w.kind != model::WeightKind::kPlain)
    return {Shape::kNormal, gain(name) / std::sqrt(static_cast<double>(w.shape[1]))};
  if (name.ends_with("embed.weight") || name.starts_with("image_")) return {Shape::kNormal, 1};
  if (has(name, "engram.")) return {Shape::kSigned, 1};
  if (name.ends_with("_fn"))
    return {Shape::kNormal, 1 / std::sqrt(static_cast<double>(config.hc_mult * config.hidden_size))};
  if (name.ends_with("_scale") || has(name, "norm")) return {Shape::kPositive, 1};
  if (name.ends_with("_base") || name.ends_with("attn_sink")) return {Shape::kNormal, 0.5};
  if (name.ends_with("gate.weight")) return {Shape::kNormal, 1.5 / std::sqrt(static_cast<double>(config.hidden_size))};
  if (name.ends_with("gate.bias") || name.ends_with("gate.bias_vl") || w.shape.size() == 1)
    return {Shape::kNormal, 0.2};
  return {Shape::kNormal, 1 / std::sqrt(static_cast<double>(w.shape[1]))};
}

}  // namespace

std::vector<float> random_values(const model::Weight& weight, const model::Config& config, uint64_t seed) {
  const Rule r = rule(weight, config);
  SplitMix64 random(exl3_pack::stream_seed(weight.name, seed));
  std::vector<float> values(static_cast<size_t>(tensor::element_count(weight.shape).value_or(0)));
  double row = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    // Engram rows differ in size by powers of two, so that their scales differ, too.
    if (weight.kind == model::WeightKind::kTableFp8 && i % 32 == 0)
      row = std::ldexp(1.0, -static_cast<int>(random.next() >> 62));
    const double v = r.shape == Shape::kNormal ? r.size * normal(random) : 0.5 + random.uniform();
    values[i] = static_cast<float>(r.shape == Shape::kSigned ? random.sign() * v : row * v);
  }
  return values;
}

}  // namespace dsf::made_checkpoint
