#include "tools/serve/backends/cuda/device_model.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace dsf::serve::cuda {
namespace {

constexpr size_t kAlign = 256;

}  // namespace

// Walks over the model once per pass: without memory it counts, with memory it hands out places and has them filled.
class ModelBuilder {
 public:
  ModelBuilder(const model::Config& config, WeightSource& source, std::byte* memory) : c_(config), source_(source), memory_(memory) {}

  Result<void> build(DeviceModel& m) {
    const std::vector<model::LayerRole> roles = model::layer_roles(c_);
    DSF_TRY(m.embed, linear("embed", c_.vocab_size, c_.hidden_size));
    DSF_TRY(m.head, linear("head", c_.vocab_size, c_.hidden_size));
    DSF_TRY(m.norm, vector("norm.weight", c_.hidden_size));
    for (size_t i = 0; i < roles.size(); ++i) {
      DSF_TRY(DeviceLayer layer, build_layer("layers." + std::to_string(i) + ".", roles[i]));
      m.layers.push_back(std::move(layer));
    }
    m.max_expert_width = max_expert_width_;
    m.bytes_ = used_;
    return {};
  }

 private:
  template <class T>
  T* take(int64_t count) {
    const size_t at = used_;
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return memory_ != nullptr ? reinterpret_cast<T*>(memory_ + at) : nullptr;
  }

  Result<const float*> vector(const std::string& name, int64_t n) {
    float* const to = take<float>(n);
    if (to != nullptr) DSF_OK(source_.fill_vector(name, n, to));
    return to;
  }

  // scale: a factor for the weights, which are f32 then.
  Result<DeviceLinear> linear(const std::string& name, int64_t out, int64_t in, float scale = 1) {
    DSF_TRY(StoredLinear stored, source_.describe(name, out, in));
    if (stored.form == WeightForm::kExl3) return packed(name, out, in, stored);
    if (scale != 1 || (name == "embed" && stored.form == WeightForm::kF16)) stored.form = WeightForm::kF32;
    return dense(name, out, in, stored, scale);
  }

  Result<DeviceLinear> dense(const std::string& name, int64_t out, int64_t in, StoredLinear stored, float scale = 1) {
    DeviceLinear l;
    l.out = out, l.in = in;
    void* to = nullptr;
    if (stored.form == WeightForm::kF32) {
      float* const p = take<float>(out * in);
      l.f32 = p, to = p;
    } else {
      uint16_t* const p = take<uint16_t>(out * in);
      (stored.form == WeightForm::kBf16 ? l.bf16 : l.f16) = p, to = p;
    }
    if (to != nullptr) DSF_OK(source_.fill_dense(name, out, in, stored, scale, to));
    return l;
  }

  Result<DeviceLinear> packed(const std::string& name, int64_t out, int64_t in, StoredLinear stored) {
    DeviceLinear l;
    l.out = out, l.in = in;
    auto* const lanes = take<std::byte>(out * in / 8 * stored.bits);
    auto* const suh = take<uint16_t>(in);
    auto* const svh = take<uint16_t>(out);
    l.exl3 = {lanes, suh, svh, static_cast<int>(in), static_cast<int>(out), stored.bits};
    if (lanes != nullptr) DSF_OK(source_.fill_exl3(name, out, in, stored, lanes, suh, svh));
    return l;
  }

  Result<DeviceHyper> hyper(const std::string& prefix) {
    const int64_t m = (2 + c_.hc_mult) * c_.hc_mult;
    DeviceHyper h;
    DSF_TRY(h.fn, vector(prefix + "_fn", m * c_.hc_mult * c_.hidden_size));
    DSF_TRY(h.base, vector(prefix + "_base", m));
    DSF_TRY(h.scale, vector(prefix + "_scale", 3));
    return h;
  }

  Result<DeviceLayer> build_layer(const std::string& p, const model::LayerRole& role) {
    DeviceLayer d;
    DSF_TRY(d.hc_attn, hyper(p + "hc_attn"));
    DSF_TRY(d.hc_ffn, hyper(p + "hc_ffn"));
    DSF_TRY(d.attn_norm, vector(p + "attn_norm.weight", c_.hidden_size));
    DSF_TRY(d.ffn_norm, vector(p + "ffn_norm.weight", c_.hidden_size));
    DSF_OK(attention(p + "attn.", d));
    if (role.owns_kv) DSF_OK(compressor(p + "attn.", role.ratio, d));
    if (role.owns_index) DSF_OK(indexer(p + "attn.", d));
    if (role.engram >= 0) {
      DSF_TRY(d.engram_wkv, linear(p + "engram.wkv", (c_.hc_mult + 1) * c_.hidden_size, c_.engram_columns() * c_.engram_head_dim));
      DSF_TRY(d.engram_q, vector(p + "engram.q_weight", c_.hc_mult * c_.hidden_size));
      DSF_TRY(d.engram_k, vector(p + "engram.k_weight", c_.hc_mult * c_.hidden_size));
    }
    DSF_TRY(d.gate, linear(p + "ffn.gate", c_.n_routed_experts, c_.hidden_size));
    DSF_TRY(d.gate_bias, vector(p + "ffn.gate.bias", c_.n_routed_experts));
    DSF_OK(experts(p + "ffn.", d));
    return d;
  }

  Result<void> attention(const std::string& p, DeviceLayer& d) {
    const int64_t q = c_.num_attention_heads * c_.head_dim, group_in = q / c_.o_groups;
    DSF_TRY(d.wq_a, linear(p + "wq_a", c_.q_lora_rank, c_.hidden_size));
    DSF_TRY(d.wq_b, linear(p + "wq_b", q, c_.q_lora_rank));
    DSF_TRY(d.wkv, linear(p + "wkv", c_.head_dim, c_.hidden_size));
    DSF_TRY(d.wo_b, linear(p + "wo_b", c_.hidden_size, c_.o_groups * c_.o_lora_rank));
    DSF_TRY(d.q_norm, vector(p + "q_norm.weight", c_.q_lora_rank));
    DSF_TRY(d.kv_norm, vector(p + "kv_norm.weight", c_.head_dim));
    DSF_TRY(d.sink, vector(p + "attn_sink", c_.num_attention_heads));
    return output_groups(p + "wo_a", group_in, d);
  }

  // Slices that are not all packed stand below each other in one dense matrix, like a wo_a in one piece.
  Result<void> output_groups(const std::string& name, int64_t in, DeviceLayer& d) {
    const int64_t groups = c_.o_groups, out = c_.o_lora_rank;
    d.wo_a.out = out, d.wo_a.in = in;
    if (!source_.sliced(name)) {
      DSF_TRY(d.wo_a, linear(name, groups * out, in));
      d.wo_a.out = out;
      return d.wo_a.packed() || d.wo_a.f16 != nullptr ? fail(Code::kContent, name, "packed in one piece; its groups need a matrix each") : Result<void>{};
    }
    DSF_TRY(const StoredLinear first, source_.describe(name + ".slice.0", out, in));
    if (first.form == WeightForm::kExl3) {
      for (int64_t g = 0; g < groups; ++g) {
        DSF_TRY(DeviceLinear slice, linear(name + ".slice." + std::to_string(g), out, in));
        if (!slice.packed()) return fail(Code::kContent, name, "some slices are packed and some are not");
        d.wo_a_slices.push_back(slice);
      }
      return {};
    }
    float* const all = take<float>(groups * out * in);
    d.wo_a.f32 = all;
    for (int64_t g = 0; all != nullptr && g < groups; ++g)
      DSF_OK(source_.fill_dense(name + ".slice." + std::to_string(g), out, in, {}, 1, all + g * out * in));
    return {};
  }

  Result<void> compressor(const std::string& p, int64_t ratio, DeviceLayer& d) {
    DSF_TRY(d.compress_wkv, linear(p + "compressor.wkv", c_.head_dim, c_.hidden_size));
    if (ratio > 1) {
      DSF_TRY(d.compress_wgate, linear(p + "compressor.wgate", c_.head_dim, c_.hidden_size));
    }
    DSF_TRY(d.index_wk, linear(p + "indexer.wk", c_.index_head_dim, c_.head_dim));
    DSF_TRY(d.compress_norm, vector(p + "compressor.norm.weight", c_.head_dim));
    DSF_TRY(d.index_k_norm, vector(p + "indexer.k_norm.weight", c_.index_head_dim));
    return {};
  }

  Result<void> indexer(const std::string& p, DeviceLayer& d) {
    const float scale = 1.0f / (std::sqrt(static_cast<float>(c_.index_head_dim)) * std::sqrt(static_cast<float>(c_.index_n_heads)));
    DSF_TRY(d.index_wq_b, linear(p + "indexer.wq_b", c_.index_n_heads * c_.index_head_dim, c_.q_lora_rank));
    DSF_TRY(d.index_weights, linear(p + "indexer.weights_proj", c_.index_n_heads, c_.hidden_size, scale));
    return {};
  }

  struct Names {
    std::string prefix;
    int64_t inter;
  };

  Result<void> experts(const std::string& p, DeviceLayer& d) {
    std::vector<Names> names;
    for (int64_t e = 0; e < c_.n_routed_experts; ++e) names.push_back({p + "experts." + std::to_string(e) + ".", c_.moe_intermediate_size});
    d.has_shared = c_.n_shared_experts > 0;
    if (d.has_shared) names.push_back({p + "shared_experts.", c_.n_shared_experts * c_.moe_intermediate_size});
    DSF_TRY(const StoredLinear first, source_.describe(names.front().prefix + "w1", names.front().inter, c_.hidden_size));
    const bool same_width = !d.has_shared || c_.n_shared_experts == 1;
    return first.form == WeightForm::kExl3 && same_width && c_.num_experts_per_tok <= ops::kExl3MoeChoices ? packed_experts(names, d) : dense_experts(names, d);
  }

  Result<void> packed_experts(const std::vector<Names>& names, DeviceLayer& d) {
    std::vector<ops::Exl3Expert> table;
    auto* const to = take<ops::Exl3Expert>(std::ssize(names));
    for (const Names& n : names) {
      DSF_TRY(const DeviceLinear w1, linear(n.prefix + "w1", n.inter, c_.hidden_size));
      DSF_TRY(const DeviceLinear w3, linear(n.prefix + "w3", n.inter, c_.hidden_size));
      DSF_TRY(const DeviceLinear w2, linear(n.prefix + "w2", c_.hidden_size, n.inter));
      if (!w1.packed() || !w3.packed() || !w2.packed()) return fail(Code::kContent, n.prefix + "w1", "some experts are packed with codebook mul1 and some are not");
      for (const DeviceLinear* l : {&w1, &w3, &w2}) d.expert_bits = std::max(d.expert_bits, l->exl3.bits);
      table.push_back({w1.exl3, w3.exl3, w2.exl3});
    }
    d.packed_experts = to;
    return upload(to, table);
  }

  Result<void> dense_experts(const std::vector<Names>& names, DeviceLayer& d) {
    std::vector<ops::ExpertWeights> table;
    auto* const to = take<ops::ExpertWeights>(std::ssize(names));
    for (const Names& n : names) {
      DSF_TRY(const DeviceLinear w1, dense(n.prefix + "w1", n.inter, c_.hidden_size, {}));
      DSF_TRY(const DeviceLinear w3, dense(n.prefix + "w3", n.inter, c_.hidden_size, {}));
      DSF_TRY(const DeviceLinear w2, dense(n.prefix + "w2", c_.hidden_size, n.inter, {}));
      max_expert_width_ = std::max(max_expert_width_, n.inter);
      table.push_back({w1.f32, w3.f32, w2.f32, n.inter});
    }
    d.experts = to;
    return upload(to, table);
  }

  template <class T>
  Result<void> upload(T* to, const std::vector<T>& table) {
    if (to == nullptr) return {};
    DSF_TRY(const gpu::Stream stream, gpu::Stream::create());
    DSF_OK(gpu::copy_to_device(stream, to, table.data(), table.size() * sizeof(T)));
    return stream.wait();  // the table goes away
  }

  const model::Config& c_;
  WeightSource& source_;
  std::byte* memory_;
  size_t used_ = 0;
  int64_t max_expert_width_ = 0;
};

Result<DeviceModel> DeviceModel::plan(const model::Config& config, WeightSource& source) {
  DeviceModel out;
  DSF_OK(ModelBuilder(config, source, nullptr).build(out));
  return out;
}

Result<DeviceModel> DeviceModel::load(const model::Config& config, WeightSource& source) {
  DSF_TRY(const DeviceModel planned, plan(config, source));
  DeviceModel out;
  DSF_TRY(out.memory_, gpu::allocate(planned.bytes()));
  DSF_OK(ModelBuilder(config, source, out.memory_.as<std::byte>()).build(out));
  DSF_TRY(out.report_, source.finish());
  return out;
}

}  // namespace dsf::serve::cuda
