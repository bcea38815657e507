#include "tools/serve/backends/cuda/device_model.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace dsf::serve::cuda {
namespace {

constexpr size_t kAlign = 256;

}  // namespace

Result<DeviceShare> DeviceShare::of(const model::Config& config, int rank, int world, model::StoredForm form) {
  if (world < 1 || rank < 0 || rank >= world) return fail(Code::kUsage, "rank " + std::to_string(rank), "is not a rank of " + std::to_string(world));
  DSF_TRY(const model::Split split, model::Split::create(config, world, form));
  DeviceShare s{.rank = rank, .world = world, .own = split.share(rank), .vocab = {}};
  for (const model::RankShare& other : split.shares()) {
    s.vocab.push_back(other.vocab);
    s.vocab_width = std::max(s.vocab_width, other.vocab.size());
  }
  return s;
}

// Walks over the model once per pass: without memory it counts, with memory it hands out places and has them filled.
class ModelBuilder {
 public:
  ModelBuilder(const model::Config& config, const DeviceShare& share, WeightSource& source, std::byte* memory)
      : c_(config), share_(share), source_(source), memory_(memory) {}

  Result<void> build(DeviceModel& m) {
    const std::vector<model::LayerRole> roles = model::layer_roles(c_);
    DSF_TRY(m.embed, linear("embed", c_.vocab_size, c_.hidden_size));
    DSF_TRY(m.head, outputs("head", c_.vocab_size, c_.hidden_size, share_.own.vocab));
    DSF_TRY(m.norm, vector("norm.weight", c_.hidden_size));
    for (size_t i = 0; i < roles.size(); ++i) {
      DSF_TRY(DeviceLayer layer, build_layer("layers." + std::to_string(i) + ".", roles[i]));
      m.layers.push_back(std::move(layer));
    }
    m.share = share_;
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

  Result<DeviceLinear> linear(const std::string& name, int64_t out, int64_t in, float scale = 1) { return part_of(name, {out, in}, {0, out, 0, in}, scale); }
  Result<DeviceLinear> outputs(const std::string& name, int64_t out, int64_t in, const model::Range& part) { return part_of(name, {out, in}, {part.begin, part.end, 0, in}); }
  Result<DeviceLinear> inputs(const std::string& name, int64_t out, int64_t in, const model::Range& part) { return part_of(name, {out, in}, {0, out, part.begin, part.end}); }

  // scale: a factor for the weights, which are f32 then.
  Result<DeviceLinear> part_of(const std::string& name, const MatrixSize& whole, const MatrixPart& part, float scale = 1) {
    DSF_TRY(StoredLinear stored, source_.describe(name, whole.out, whole.in));
    if (stored.form == WeightForm::kExl3) return packed(name, whole, part, stored);
    if (scale != 1 || (name == "embed" && stored.form == WeightForm::kF16)) stored.form = WeightForm::kF32;
    return dense(name, whole, part, stored, scale);
  }

  Result<DeviceLinear> dense(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, float scale = 1) {
    DeviceLinear l;
    l.out = part.out(), l.in = part.in();
    void* to = nullptr;
    if (stored.form == WeightForm::kF32) {
      float* const p = take<float>(l.out * l.in);
      l.f32 = p, to = p;
    } else {
      uint16_t* const p = take<uint16_t>(l.out * l.in);
      (stored.form == WeightForm::kBf16 ? l.bf16 : l.f16) = p, to = p;
    }
    if (to != nullptr) DSF_OK(source_.fill_dense(name, whole, part, stored, scale, to));
    return l;
  }

  Result<DeviceLinear> packed(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored) {
    DeviceLinear l;
    l.out = part.out(), l.in = part.in();
    auto* const lanes = take<std::byte>(l.out * l.in / 8 * stored.bits);
    auto* const suh = take<uint16_t>(l.in);
    auto* const svh = take<uint16_t>(l.out);
    l.exl3 = {lanes, suh, svh, static_cast<int>(l.in), static_cast<int>(l.out), stored.bits};
    if (lanes != nullptr) DSF_OK(source_.fill_exl3(name, whole, part, stored, lanes, suh, svh));
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
    const int64_t q = c_.num_attention_heads * c_.head_dim, lora = c_.o_lora_rank;
    const model::Range dims{share_.own.heads.begin * c_.head_dim, share_.own.heads.end * c_.head_dim};
    DSF_TRY(d.wq_a, linear(p + "wq_a", c_.q_lora_rank, c_.hidden_size));
    DSF_TRY(d.wq_b, outputs(p + "wq_b", q, c_.q_lora_rank, dims));
    DSF_TRY(d.wkv, linear(p + "wkv", c_.head_dim, c_.hidden_size));
    DSF_TRY(d.wo_b, inputs(p + "wo_b", c_.hidden_size, c_.o_groups * lora, {share_.own.groups.begin * lora, share_.own.groups.end * lora}));
    DSF_TRY(d.q_norm, vector(p + "q_norm.weight", c_.q_lora_rank));
    DSF_TRY(d.kv_norm, vector(p + "kv_norm.weight", c_.head_dim));
    DSF_TRY(d.sink, vector(p + "attn_sink", c_.num_attention_heads));
    if (d.sink != nullptr) d.sink += share_.own.heads.begin;
    return output_groups(p + "wo_a", q / c_.o_groups, d);
  }

  // Slices that are not packed stand below each other in one dense matrix, like a wo_a in one piece.
  Result<void> output_groups(const std::string& name, int64_t in, DeviceLayer& d) {
    const int64_t out = c_.o_lora_rank;
    const model::Range& groups = share_.own.groups;
    d.wo_a.out = out, d.wo_a.in = in;
    if (!source_.sliced(name)) {
      DSF_TRY(d.wo_a, outputs(name, c_.o_groups * out, in, {groups.begin * out, groups.end * out}));
      d.wo_a.out = out;
      return d.wo_a.packed() || d.wo_a.f16 != nullptr ? fail(Code::kContent, name, "packed in one piece; its groups need a matrix each") : Result<void>{};
    }
    const auto slice_name = [&](int64_t g) { return name + ".slice." + std::to_string(g); };
    DSF_TRY(const StoredLinear first, source_.describe(slice_name(groups.begin), out, in));
    float* const all = first.form == WeightForm::kExl3 ? nullptr : take<float>(groups.size() * out * in);
    if (first.form != WeightForm::kExl3) d.wo_a.f32 = all;
    for (int64_t g = groups.begin; g < groups.end; ++g) {
      if (first.form != WeightForm::kExl3) {
        if (all != nullptr) DSF_OK(source_.fill_dense(slice_name(g), {out, in}, {0, out, 0, in}, {}, 1, all + (g - groups.begin) * out * in));
        continue;
      }
      DSF_TRY(DeviceLinear slice, linear(slice_name(g), out, in));
      if (!slice.packed()) return fail(Code::kContent, name, "some slices are packed and some are not");
      d.wo_a_slices.push_back(slice);
    }
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

  // The rank's part of an expert's width.
  const model::Range& width_of(const Names& n) const { return n.inter == c_.moe_intermediate_size ? share_.own.expert : share_.own.shared; }

  Result<void> packed_experts(const std::vector<Names>& names, DeviceLayer& d) {
    std::vector<ops::Exl3Expert> table;
    auto* const to = take<ops::Exl3Expert>(std::ssize(names));
    for (const Names& n : names) {
      DSF_TRY(const DeviceLinear w1, outputs(n.prefix + "w1", n.inter, c_.hidden_size, width_of(n)));
      DSF_TRY(const DeviceLinear w3, outputs(n.prefix + "w3", n.inter, c_.hidden_size, width_of(n)));
      DSF_TRY(const DeviceLinear w2, inputs(n.prefix + "w2", c_.hidden_size, n.inter, width_of(n)));
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
      const model::Range& width = width_of(n);
      const MatrixSize up{n.inter, c_.hidden_size}, down{c_.hidden_size, n.inter};
      DSF_TRY(const DeviceLinear w1, dense(n.prefix + "w1", up, {width.begin, width.end, 0, c_.hidden_size}, {}));
      DSF_TRY(const DeviceLinear w3, dense(n.prefix + "w3", up, {width.begin, width.end, 0, c_.hidden_size}, {}));
      DSF_TRY(const DeviceLinear w2, dense(n.prefix + "w2", down, {0, c_.hidden_size, width.begin, width.end}, {}));
      max_expert_width_ = std::max(max_expert_width_, width.size());
      table.push_back({w1.f32, w3.f32, w2.f32, width.size()});
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
  const DeviceShare share_;
  WeightSource& source_;
  std::byte* memory_;
  size_t used_ = 0;
  int64_t max_expert_width_ = 0;
};

Result<DeviceModel> DeviceModel::plan(const model::Config& config, const DeviceShare& share, WeightSource& source) {
  DeviceModel out;
  DSF_OK(ModelBuilder(config, share, source, nullptr).build(out));
  return out;
}

Result<DeviceModel> DeviceModel::load(const model::Config& config, const DeviceShare& share, WeightSource& source) {
  DSF_TRY(const DeviceModel planned, plan(config, share, source));
  DeviceModel out;
  DSF_TRY(out.memory_, gpu::allocate(planned.bytes()));
  DSF_OK(ModelBuilder(config, share, source, out.memory_.as<std::byte>()).build(out));
  DSF_TRY(out.report_, source.finish());
  return out;
}

}  // namespace dsf::serve::cuda
