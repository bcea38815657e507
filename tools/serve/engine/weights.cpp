#include "tools/serve/engine/weights.h"

#include <string>

#include "dsf/exl3/matrix.h"
#include "dsf/model/router.h"
#include "dsf/model/tensor_table.h"
#include "tools/serve/engine/weight_reader.h"

namespace dsf::serve {
namespace {

using model::Config;
using model::Range;
using model::RankShare;

Result<HyperWeights> load_hyper(const WeightReader& r, const Config& c, const std::string& prefix) {
  const int64_t m = (2 + c.hc_mult) * c.hc_mult;
  HyperWeights h;
  DSF_TRY(h.fn, r.vector(prefix + "_fn", m * c.hc_mult * c.hidden_size));
  DSF_TRY(h.base, r.vector(prefix + "_base", m));
  DSF_TRY(h.scale, r.vector(prefix + "_scale", 3));
  return h;
}

Result<AttentionWeights> load_attention(const WeightReader& r, const Config& c, const RankShare& s,
                                        const std::string& p) {
  const int64_t d = c.hidden_size, q = c.num_attention_heads * c.head_dim;
  const Range dims{s.heads.begin * c.head_dim, s.heads.end * c.head_dim};
  const Range lora{s.groups.begin * c.o_lora_rank, s.groups.end * c.o_lora_rank};
  AttentionWeights a;
  DSF_TRY(a.wq_a, r.linear(p + "wq_a", c.q_lora_rank, d));
  DSF_TRY(a.q_norm, r.vector(p + "q_norm.weight", c.q_lora_rank));
  DSF_TRY(a.wq_b, r.outputs(p + "wq_b", q, c.q_lora_rank, dims));
  DSF_TRY(a.wkv, r.linear(p + "wkv", c.head_dim, d));
  DSF_TRY(a.kv_norm, r.vector(p + "kv_norm.weight", c.head_dim));
  DSF_TRY(a.wo_a, r.grouped(p + "wo_a", c.o_groups, c.o_lora_rank, q / c.o_groups, s.groups));
  DSF_TRY(a.wo_b, r.inputs(p + "wo_b", d, c.o_groups * c.o_lora_rank, lora));
  DSF_TRY(const Vec sink, r.vector(p + "attn_sink", c.num_attention_heads));
  a.sink.assign(sink.begin() + s.heads.begin, sink.begin() + s.heads.end);
  return a;
}

Result<CompressorWeights> load_compressor(const WeightReader& r, const Config& c, const std::string& p, int64_t ratio) {
  CompressorWeights w;
  DSF_TRY(w.wkv, r.linear(p + "compressor.wkv", c.head_dim, c.hidden_size));
  if (ratio > 1) {
    DSF_TRY(w.wgate, r.linear(p + "compressor.wgate", c.head_dim, c.hidden_size));
  }
  DSF_TRY(w.norm, r.vector(p + "compressor.norm.weight", c.head_dim));
  DSF_TRY(w.index_wk, r.linear(p + "indexer.wk", c.index_head_dim, c.head_dim));
  DSF_TRY(w.index_k_norm, r.vector(p + "indexer.k_norm.weight", c.index_head_dim));
  return w;
}

Result<IndexerWeights> load_indexer(const WeightReader& r, const Config& c, const std::string& p) {
  IndexerWeights w;
  DSF_TRY(w.wq_b, r.linear(p + "indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank));
  DSF_TRY(w.weights_proj, r.linear(p + "indexer.weights_proj", c.index_n_heads, c.hidden_size));
  return w;
}

Result<EngramWeights> load_engram(const WeightReader& r, const Config& c, const std::string& p) {
  EngramWeights w;
  DSF_TRY(w.wkv, r.linear(p + "wkv", (c.hc_mult + 1) * c.hidden_size, c.engram_columns() * c.engram_head_dim));
  DSF_TRY(w.q_weight, r.vector(p + "q_weight", c.hc_mult * c.hidden_size));
  DSF_TRY(w.k_weight, r.vector(p + "k_weight", c.hc_mult * c.hidden_size));
  return w;
}

Result<Expert> load_expert(const WeightReader& r, const std::string& p, int64_t inter, int64_t dim, Range part) {
  Expert e;
  DSF_TRY(e.w1, r.outputs(p + "w1", inter, dim, part));
  DSF_TRY(e.w3, r.outputs(p + "w3", inter, dim, part));
  DSF_TRY(e.w2, r.inputs(p + "w2", dim, inter, part));
  return e;
}

ops::ExpertWeights view(const Expert& e) {
  return {.w1 = e.w1.w.data(), .w3 = e.w3.w.data(), .w2 = e.w2.w.data(), .inter = e.w1.out};
}

Result<MoeWeights> load_moe(const WeightReader& r, const Config& c, const RankShare& s, const std::string& p,
                            int64_t n_experts, int64_t per_token) {
  MoeWeights m;
  m.experts_per_token = per_token;
  const model::RouterPlace place{p + "gate", n_experts, p.starts_with("mtp.")};
  DSF_TRY(model::Router router, model::attach_router(r.checkpoint(), nullptr, place, c.hidden_size));
  m.gate = {.w = std::move(router.weight), .out = n_experts, .in = c.hidden_size};
  m.bias = std::move(router.bias);
  for (int64_t e = 0; e < n_experts; ++e) {
    DSF_TRY(Expert expert,
            load_expert(r, p + "experts." + std::to_string(e) + ".", c.moe_intermediate_size, c.hidden_size, s.expert));
    m.experts.push_back(std::move(expert));
  }
  for (const Expert& e : m.experts) m.expert_views.push_back(view(e));
  if (c.n_shared_experts > 0) {
    DSF_TRY(m.shared, load_expert(r, p + "shared_experts.", c.n_shared_experts * c.moe_intermediate_size, c.hidden_size,
                                  s.shared));
    m.shared_view = view(m.shared);
  }
  return m;
}

// What a backbone layer and a draft block have in common.
Result<LayerWeights> load_block(const WeightReader& r, const Config& c, const RankShare& s, const std::string& p,
                                int64_t n_experts, int64_t per_token) {
  LayerWeights w;
  DSF_TRY(w.hc_attn, load_hyper(r, c, p + "hc_attn"));
  DSF_TRY(w.hc_ffn, load_hyper(r, c, p + "hc_ffn"));
  DSF_TRY(w.attn_norm, r.vector(p + "attn_norm.weight", c.hidden_size));
  DSF_TRY(w.ffn_norm, r.vector(p + "ffn_norm.weight", c.hidden_size));
  DSF_TRY(w.attn, load_attention(r, c, s, p + "attn."));
  DSF_TRY(w.ffn, load_moe(r, c, s, p + "ffn.", n_experts, per_token));
  return w;
}

Result<DraftWeights> load_draft(const WeightReader& r, const Config& c, const RankShare& s) {
  const int64_t n = c.num_nextn_predict_layers, d = c.hidden_size;
  const std::string first = "mtp.0.", last = "mtp." + std::to_string(n - 1) + ".";
  DraftWeights w;
  DSF_TRY(w.main_proj, r.linear(first + "main_proj", d, std::ssize(c.dspark_target_layer_ids) * d));
  DSF_TRY(w.main_norm, r.vector(first + "main_norm.weight", d));
  for (int64_t i = 0; i < n; ++i) {
    DSF_TRY(LayerWeights stage, load_block(r, c, s, "mtp." + std::to_string(i) + ".", c.dspark_n_routed_experts,
                                           c.dspark_num_experts_per_tok));
    w.stages.push_back(std::move(stage));
  }
  DSF_TRY(w.norm, r.vector(last + "norm.weight", d));
  DSF_TRY(w.markov_embed, r.linear(last + "markov_head.embed", c.vocab_size, c.dspark_markov_rank));
  DSF_TRY(w.markov_head, r.linear(last + "markov_head.head", c.vocab_size, c.dspark_markov_rank));
  DSF_TRY(w.confidence, r.vector(last + "confidence_head.proj.weight", d + c.dspark_markov_rank));
  return w;
}

}  // namespace

model::StoredForm stored_form(const safetensors::Checkpoint& checkpoint) {
  const bool packed = exl3::is_packed(checkpoint, "layers.0.attn.wq_b");
  return packed ? model::StoredForm::kExl3 : model::StoredForm::kNative;
}

Result<ModelWeights> load_weights(const Config& config, const safetensors::Checkpoint& checkpoint, bool with_draft) {
  return load_weights(config, checkpoint, with_draft, model::Split::whole(config).share(0));
}

Result<ModelWeights> load_weights(const Config& config, const safetensors::Checkpoint& checkpoint, bool with_draft,
                                  const RankShare& share) {
  DSF_OK(model::require_loadable(config, checkpoint));
  const WeightReader r(checkpoint);
  const std::vector<model::LayerRole> roles = model::layer_roles(config);
  ModelWeights m;
  DSF_TRY(m.embed, r.linear("embed", config.vocab_size, config.hidden_size));
  DSF_TRY(m.head, r.outputs("head", config.vocab_size, config.hidden_size, share.vocab));
  DSF_TRY(m.norm, r.vector("norm.weight", config.hidden_size));
  for (size_t i = 0; i < roles.size(); ++i) {
    const std::string p = "layers." + std::to_string(i) + ".";
    DSF_TRY(LayerWeights layer, load_block(r, config, share, p, config.n_routed_experts, config.num_experts_per_tok));
    if (roles[i].owns_kv) {
      DSF_TRY(layer.compressor, load_compressor(r, config, p + "attn.", roles[i].ratio));
    }
    if (roles[i].owns_index) {
      DSF_TRY(layer.indexer, load_indexer(r, config, p + "attn."));
    }
    if (roles[i].engram >= 0) {
      DSF_TRY(layer.engram, load_engram(r, config, p + "engram."));
    }
    m.layers.push_back(std::move(layer));
  }
  if (with_draft && config.num_nextn_predict_layers > 0) {
    DSF_TRY(m.draft, load_draft(r, config, share));
  }
  return m;
}

}  // namespace dsf::serve
