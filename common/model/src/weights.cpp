#include "dsf/model/weights.h"

#include "dsf/base/numeric.h"

namespace dsf::model {
namespace {

using tensor::DType;
using tensor::Shape;

// Collects weights under a prefix such as "layers.3.".
class Collector {
 public:
  std::vector<Weight> out;
  std::string prefix;

  void plain(const std::string& name, Shape shape, DType dtype) { out.push_back({prefix + name, WeightKind::kPlain, std::move(shape), dtype, false}); }
  void norm(const std::string& module, int64_t n) { plain(module + ".weight", {n}, DType::kBF16); }
  void linear(WeightKind kind, const std::string& module, int64_t n_out, int64_t n_in, bool packed) {
    out.push_back({prefix + module, kind, {n_out, n_in}, DType::kBF16, packed});
  }
  void fp8(const std::string& module, int64_t n_out, int64_t n_in) { linear(WeightKind::kLinearFp8, module, n_out, n_in, true); }
};

void mixes(Collector& w, const Config& c) {
  const int64_t s = c.hc_mult, outputs = 2 * s + s * s;
  for (const char* part : {"attn", "ffn"}) {
    const std::string name = std::string("hc_") + part;
    w.plain(name + "_fn", {outputs, s * c.hidden_size}, DType::kF32);
    w.plain(name + "_base", {outputs}, DType::kF32);
    w.plain(name + "_scale", {3}, DType::kF32);
  }
}

void attention(Collector& w, const Config& c) {
  const int64_t d = c.hidden_size, heads = c.num_attention_heads;
  w.fp8("attn.wq_a", c.q_lora_rank, d);
  w.norm("attn.q_norm", c.q_lora_rank);
  w.fp8("attn.wq_b", heads * c.head_dim, c.q_lora_rank);
  w.fp8("attn.wkv", c.head_dim, d);
  w.norm("attn.kv_norm", c.head_dim);
  w.fp8("attn.wo_a", c.o_groups * c.o_lora_rank, heads * c.head_dim / c.o_groups);
  w.fp8("attn.wo_b", d, c.o_groups * c.o_lora_rank);
  w.plain("attn.attn_sink", {heads}, DType::kF32);
}

void experts(Collector& w, const Config& c, int64_t n_experts) {
  const int64_t d = c.hidden_size, f = c.moe_intermediate_size;
  w.plain("ffn.gate.weight", {n_experts, d}, DType::kBF16);
  w.plain("ffn.gate.bias", {n_experts}, DType::kF32);
  w.plain("ffn.gate.bias_vl", {n_experts}, DType::kF32);
  if (c.n_shared_experts > 0) {
    w.fp8("ffn.shared_experts.w1", f * c.n_shared_experts, d);
    w.fp8("ffn.shared_experts.w2", d, f * c.n_shared_experts);
    w.fp8("ffn.shared_experts.w3", f * c.n_shared_experts, d);
  }
  for (int64_t e = 0; e < n_experts; ++e) {
    const std::string expert = "ffn.experts." + std::to_string(e) + ".";
    w.linear(WeightKind::kLinearFp4, expert + "w1", f, d, true);
    w.linear(WeightKind::kLinearFp4, expert + "w2", d, f, true);
    w.linear(WeightKind::kLinearFp4, expert + "w3", f, d, true);
  }
}

void block(Collector& w, const Config& c, int64_t n_experts) {
  w.norm("attn_norm", c.hidden_size);
  w.norm("ffn_norm", c.hidden_size);
  mixes(w, c);
  attention(w, c);
  experts(w, c, n_experts);
}

void compressed_kv(Collector& w, const Config& c, const LayerRole& role) {
  if (role.owns_kv) {
    w.linear(WeightKind::kLinearBf16, "attn.compressor.wkv", c.head_dim, c.hidden_size, true);
    if (role.ratio == 2) w.linear(WeightKind::kLinearBf16, "attn.compressor.wgate", c.head_dim, c.hidden_size, true);
    w.norm("attn.compressor.norm", c.head_dim);
    w.linear(WeightKind::kLinearBf16, "attn.indexer.wk", c.index_head_dim, c.head_dim, true);
    w.norm("attn.indexer.k_norm", c.index_head_dim);
  }
  if (role.owns_index) {
    w.fp8("attn.indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank);
    w.linear(WeightKind::kLinearBf16, "attn.indexer.weights_proj", c.index_n_heads, c.hidden_size, false);
  }
}

void engram(Collector& w, const Config& c, int64_t index) {
  const int64_t s = c.hc_mult, d = c.hidden_size;
  w.linear(WeightKind::kTableFp8, "engram.embed", c.engram_num_embeddings[static_cast<size_t>(index)], c.engram_head_dim, false);
  // One key per stream and one shared value, from the concatenated rows.
  w.fp8("engram.wkv", (s + 1) * d, c.engram_columns() * c.engram_head_dim);
  w.plain("engram.q_weight", {s, d}, DType::kBF16);
  w.plain("engram.k_weight", {s, d}, DType::kBF16);
}

void add_stored(const Weight& w, std::vector<TensorSpec>& out) {
  const auto at = [&](size_t i) { return w.shape[i]; };
  switch (w.kind) {
    case WeightKind::kPlain: out.push_back({w.name, w.dtype, w.shape}); return;
    case WeightKind::kLinearBf16: out.push_back({w.name + ".weight", DType::kBF16, w.shape}); return;
    case WeightKind::kLinearFp8:
      out.push_back({w.name + ".weight", DType::kF8E4M3, w.shape});
      out.push_back({w.name + ".scale", DType::kF8E8M0, {ceil_div<int64_t>(at(0), 32), ceil_div<int64_t>(at(1), 32)}});
      return;
    case WeightKind::kLinearFp4:
      out.push_back({w.name + ".weight", DType::kI8, {at(0), at(1) / 2}});
      out.push_back({w.name + ".scale", DType::kF8E8M0, {at(0), at(1) / 32}});
      return;
    case WeightKind::kTableFp8:
      out.push_back({w.name + ".weight", DType::kF8E4M3, w.shape});
      out.push_back({w.name + ".scale", DType::kF8E8M0, {at(0), at(1) / 32}});
      return;
  }
}

}  // namespace

std::vector<Weight> text_weights(const Config& c) {
  Collector w;
  const int64_t d = c.hidden_size;
  w.plain("embed.weight", {c.vocab_size, d}, DType::kBF16);
  const auto roles = layer_roles(c);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const LayerRole& role = roles[static_cast<size_t>(i)];
    w.prefix = "layers." + std::to_string(i) + ".";
    block(w, c, c.n_routed_experts);
    compressed_kv(w, c, role);
    if (role.engram >= 0) engram(w, c, role.engram);
  }
  w.prefix.clear();
  w.norm("norm", d);
  w.linear(WeightKind::kLinearBf16, "head", c.vocab_size, d, true);
  return std::move(w.out);
}

std::vector<Weight> dspark_weights(const Config& c) {
  Collector w;
  const int64_t d = c.hidden_size, n = c.num_nextn_predict_layers;
  for (int64_t k = 0; k < n; ++k) {
    w.prefix = "mtp." + std::to_string(k) + ".";
    if (k == 0) {
      w.fp8("main_proj", d, d * static_cast<int64_t>(c.dspark_target_layer_ids.size()));
      w.norm("main_norm", d);
    }
    block(w, c, c.dspark_n_routed_experts);
    if (k == n - 1) {
      w.norm("norm", d);
      w.plain("markov_head.embed.weight", {c.vocab_size, c.dspark_markov_rank}, DType::kBF16);
      w.linear(WeightKind::kLinearBf16, "markov_head.head", c.vocab_size, c.dspark_markov_rank, false);
      w.linear(WeightKind::kLinearBf16, "confidence_head.proj", 1, d + c.dspark_markov_rank, false);
    }
  }
  return std::move(w.out);
}

std::vector<Weight> vision_weights(const Config& c) {
  Collector w;
  if (!c.has_vision) return {};
  const VisionConfig& v = c.vision;
  const int64_t d = c.hidden_size, h = v.hidden_size, cell = v.downsample_ratio * v.downsample_ratio * h;
  const auto biased = [&](const std::string& module, int64_t n_out, int64_t n_in) {
    w.plain(module + ".weight", {n_out, n_in}, DType::kBF16);
    w.plain(module + ".bias", {n_out}, DType::kBF16);
  };
  biased("vision.patch_embed.proj", h, 3 * v.patch_size * v.patch_size);
  for (int64_t i = 0; i < v.num_hidden_layers; ++i) {
    const std::string b = "vision.blocks." + std::to_string(i) + ".";
    w.norm(b + "norm1", h);
    w.norm(b + "norm2", h);
    biased(b + "attn.wqkv", 3 * h, h);
    biased(b + "attn.wo", h, h);
    w.plain(b + "mlp.w1.weight", {2 * v.intermediate_size, h}, DType::kBF16);
    w.plain(b + "mlp.w2.weight", {h, v.intermediate_size}, DType::kBF16);
  }
  w.norm("vision.norm", h);
  biased("aligner.w1", d, cell);
  biased("aligner.w2", d, d);
  for (const char* name : {"image_start", "image_end", "image_newline"}) w.plain(name, {d}, DType::kBF16);
  return std::move(w.out);
}

std::vector<Weight> all_weights(const Config& c) {
  std::vector<Weight> all = text_weights(c);
  for (auto&& part : {dspark_weights(c), vision_weights(c)}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::vector<TensorSpec> native_tensors(const Config& c) {
  std::vector<TensorSpec> out;
  for (const Weight& w : all_weights(c)) add_stored(w, out);
  return out;
}

Totals totals(const std::vector<TensorSpec>& tensors) {
  Totals t;
  for (const TensorSpec& s : tensors) {
    ++t.n_tensors;
    t.bytes[s.dtype] += tensor::element_count(s.shape).value_or(0) * static_cast<int64_t>(tensor::dtype_size(s.dtype));
  }
  return t;
}

std::vector<PackedSpec> exl3_matrices(const Config& c) {
  std::vector<PackedSpec> out;
  for (const auto& part : {text_weights(c), dspark_weights(c)}) {
    for (const Weight& w : part) {
      if (!w.packed_in_exl3) continue;
      if (!w.name.ends_with(".attn.wo_a")) {
        out.push_back({w.name, w.shape[0], w.shape[1]});
        continue;
      }
      for (int64_t g = 0; g < c.o_groups; ++g) out.push_back({w.name + ".slice." + std::to_string(g), c.o_lora_rank, w.shape[1]});
    }
  }
  return out;
}

}  // namespace dsf::model
