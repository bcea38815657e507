#pragma once
// The model's configuration: config.json of DeepSeek-V4.1-Flash and of every test model, parsed and validated.
// A plain value; field names follow config.json. Symbols of spec model.md: D hidden_size, H heads, hd head_dim, rd qk_rope_head_dim,
// W sliding_window, S hc_mult. Errors: kContent with the JSON path. Source: model.md section 1.
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::model {

struct YarnScaling {
  bool enabled = false;  // rope_scaling present with type yarn
  double factor = 1, beta_fast = 32, beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

struct VisionConfig {  // used for the tensor table only
  int64_t num_hidden_layers = 0, hidden_size = 0, num_attention_heads = 0, intermediate_size = 0, patch_size = 0, downsample_ratio = 0;
};

struct Config {
  int64_t bos_token_id = 0, eos_token_id = 1, pad_token_id = 2, image_token_id = -1;

  int64_t vocab_size = 0, hidden_size = 0, moe_intermediate_size = 0, num_hidden_layers = 0;
  int64_t num_attention_heads = 0, head_dim = 0, qk_rope_head_dim = 0, q_lora_rank = 0, o_lora_rank = 0, o_groups = 0;
  double swiglu_limit = 10, rms_norm_eps = 1e-20;
  int64_t max_position_embeddings = 0;
  double rope_theta = 10000, compress_rope_theta = 160000;
  YarnScaling rope_scaling;
  int64_t n_routed_experts = 0, n_shared_experts = 1, num_experts_per_tok = 0;
  double routed_scaling_factor = 1, gate_temp = 1;
  bool norm_topk_prob = true;
  int64_t sliding_window = 0;
  std::vector<int64_t> compress_ratios;         // one per layer, then one per DSpark block
  std::vector<int64_t> kv_source_layer_ids, index_source_layer_ids;
  int64_t index_n_heads = 0, index_head_dim = 0, index_topk = 0;
  int64_t candidate_source_layer_id = -1, candidate_topk_blocks = 0, candidate_block_size = 0;
  int64_t hc_mult = 4, hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;

  std::vector<int64_t> engram_layer_ids, engram_num_embeddings;
  int64_t engram_max_ngram_size = 0, engram_vocab_size = 0, engram_n_heads = 0, engram_head_dim = 0;
  int64_t engram_pad_token_id = 2, engram_compressed_vocab_size = 0;

  int64_t num_nextn_predict_layers = 0;         // DSpark blocks
  int64_t dspark_block_size = 0, dspark_noise_token_id = 0, dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0, dspark_num_experts_per_tok = 0;
  std::vector<int64_t> dspark_target_layer_ids;

  VisionConfig vision;
  bool has_vision = false;

  // Hash heads of one Engram layer: (max_ngram - 1) * n_heads columns per token.
  int64_t engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  // The Engram table of this layer, or -1.
  int64_t engram_index(int64_t layer) const;
};

// Accepts the nested release form (text_config) and a flat text config. Checks every cross-field rule the engine relies on.
Result<Config> parse_config(std::string_view json_text, std::string_view subject);
Result<Config> load_config(const std::filesystem::path& config_json);
// Every field of the text model as "key value" lines, the same on every machine: for digests.
std::string canonical_text(const Config& config);

// What one backbone layer does. Source: model.md section 1, "Derived roles".
struct LayerRole {
  int64_t ratio = 0;             // 0: window only
  int64_t kv_source = -1;        // layer whose compressed rows and index keys it reads
  int64_t index_source = -1;     // layer whose selection it uses
  bool owns_kv = false;          // has a compressor and index keys
  bool owns_index = false;       // has an indexer query and makes a selection
  bool candidate_source = false; // publishes the candidate blocks
  bool candidate_limited = false;// its own selection is restricted to the candidate blocks
  int64_t engram = -1;           // index of its Engram table, or -1
};
std::vector<LayerRole> layer_roles(const Config& config);  // [num_hidden_layers]

}  // namespace dsf::model
