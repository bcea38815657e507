#pragma once
// The model's weights in memory, f32, and how they are read from a checkpoint.
//
// ModelWeights owns everything; it is written once by load_weights() and then only read, from any thread. Every stored
// form gives the same structure: native (E4M3 or FP4 with E8M0 scales), EXL3 trellises, plain BF16/F16/F32. Meant for
// small models: a linear costs four bytes per weight here. Key: D hidden, S streams, H heads, hd head_dim, I expert
// width, E experts, V vocabulary. Source: model.md section 2, exl3.md section 2, serving.md section 6.1.
#include <cstdint>
#include <optional>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"
#include "dsf/model/split.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/serve/backends/ops/moe_experts/moe_experts.h"

namespace dsf::serve {

using Vec = std::vector<float>;

struct Linear {
  Vec w;  // [out, in] row-major
  int64_t out = 0, in = 0;
};

struct HyperWeights {
  Vec fn;     // [(2+S)*S, S*D]
  Vec base;   // [(2+S)*S]
  Vec scale;  // [3]
};

struct AttentionWeights {
  Linear wq_a;               // [q_lora, D]
  Vec q_norm;                // [q_lora]
  Linear wq_b;               // [H*hd, q_lora]
  Linear wkv;                // [hd, D]
  Vec kv_norm;               // [hd]
  std::vector<Linear> wo_a;  // per output group: [o_lora, H*hd / groups]
  Linear wo_b;               // [D, groups*o_lora]
  Vec sink;                  // [H]
};

struct CompressorWeights {  // KV sources
  Linear wkv;               // [hd, D]
  Linear wgate;             // [hd, D]; empty at ratio 1
  Vec norm;                 // [hd]
  Linear index_wk;          // [index_head_dim, hd]
  Vec index_k_norm;         // [index_head_dim]
};

struct IndexerWeights {  // index sources
  Linear wq_b;           // [index_n_heads*index_head_dim, q_lora]
  Linear weights_proj;   // [index_n_heads, D]
};

struct EngramWeights {
  Linear wkv;              // [(S+1)*D, columns*engram_head_dim]
  Vec q_weight, k_weight;  // [S, D]
};

struct Expert {
  Linear w1, w3;  // [I, D]
  Linear w2;      // [D, I]
};

struct MoeWeights {
  Linear gate;  // [E, D]
  Vec bias;     // [E]
  std::vector<Expert> experts;
  Expert shared;
  int64_t experts_per_token = 0;
  std::vector<ops::ExpertWeights>
      expert_views;  // what the op takes; borrows from experts: move a MoeWeights, never copy it
  ops::ExpertWeights shared_view;
};

struct LayerWeights {
  HyperWeights hc_attn, hc_ffn;
  Vec attn_norm, ffn_norm;  // [D]
  AttentionWeights attn;
  MoeWeights ffn;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
  std::optional<EngramWeights> engram;
};

struct DraftWeights {
  Linear main_proj;                  // [D, n_targets*D]
  Vec main_norm;                     // [D]
  std::vector<LayerWeights> stages;  // no compressor, indexer or engram
  Vec norm;                          // [D]
  Linear markov_embed, markov_head;  // [V, rank]
  Vec confidence;                    // [D + rank]
};

struct ModelWeights {
  Linear embed;  // [V, D]
  Linear head;   // [V, D]
  Vec norm;      // [D]
  std::vector<LayerWeights> layers;
  std::optional<DraftWeights> draft;
};

// with_draft: also mtp.*. share: the rank's part of the matrices that ranks split (model/split.h); H, I, groups and V
// of the head are then the share's. Errors: kMissing for an absent tensor, kContent for a dtype or shape that does not
// fit the configuration.
Result<ModelWeights> load_weights(const model::Config& config, const safetensors::Checkpoint& checkpoint,
                                  bool with_draft, const model::RankShare& share);
// The whole model.
Result<ModelWeights> load_weights(const model::Config& config, const safetensors::Checkpoint& checkpoint,
                                  bool with_draft);
// How the checkpoint's matrices are stored: decides the block size of a split.
model::StoredForm stored_form(const safetensors::Checkpoint& checkpoint);

}  // namespace dsf::serve
