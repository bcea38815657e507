// config.json of the made model: model.md 11 in spirit. Seven layers keep every path alive:
//   0 window only                         4 full at ratio 1, source of the candidate blocks
//   1 window only, Engram                 5 reindex: its own selection from the keys of 4, inside the candidate blocks
//   2 full at ratio 2, Engram             6 reuse of the rows of 4 and the selection of 5
//   3 reuse of 2
// Dimensions: whole 128-blocks on each of two ranks wherever a packed matrix is split.
#include <algorithm>

#include "dsf/engram/layout.h"
#include "dsf/json/json.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "tokenizer.h"

namespace dsf::made_checkpoint {
namespace {

using json::Array;
using json::Value;

constexpr int64_t kEngramVocabSize = 256, kMaxNgram = 4, kEngramHeads = 2, kEngramDim = 64;
constexpr int64_t kEngramLayers[] = {1, 2};

Value object(json::Object members) { return Value(std::move(members)); }

int64_t id_of(std::string_view token) { return made_tokenizer().find(token).value_or(-1); }

// Rows of the tables: per layer the sum of its primes, the next unused ones from kEngramVocabSize for each n-gram order
// (engram.md 3.2).
Array engram_rows() {
  Array rows;
  std::vector<int64_t> used;
  for ([[maybe_unused]] const int64_t layer : kEngramLayers) {
    int64_t sum = 0;
    for (int64_t order = 2; order <= kMaxNgram; ++order) {
      int64_t prime = kEngramVocabSize;
      for (int64_t head = 0; head < kEngramHeads; ++head, ++prime) {
        while (!engram::is_prime(static_cast<uint64_t>(prime)) ||
               std::find(used.begin(), used.end(), prime) != used.end())
          ++prime;
        used.push_back(prime);
        sum += prime;
      }
    }
    rows.emplace_back(sum);
  }
  return rows;
}

json::Object backbone() {
  return {{"model_type", "deepseek_v41_text"},
          {"vocab_size", kVocabSize},
          {"hidden_size", 128},
          {"moe_intermediate_size", 256},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 1},
          {"head_dim", 128},
          {"qk_rope_head_dim", 32},
          {"q_lora_rank", 128},
          {"o_lora_rank", 128},
          {"o_groups", 2},
          {"hidden_act", "silu"},
          {"swiglu_limit", 10.0},
          {"rms_norm_eps", 1e-20},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"initializer_range", 0.02},
          {"use_cache", true},
          {"tie_word_embeddings", false},
          {"max_position_embeddings", 16384},
          {"rope_theta", 10000},
          {"rope_scaling", object({{"rope_type", "yarn"},
                                   {"factor", 16},
                                   {"beta_fast", 32},
                                   {"beta_slow", 1},
                                   {"original_max_position_embeddings", 1024}})},
          {"compress_rope_theta", 160000},
          {"n_routed_experts", 4},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 2},
          {"scoring_func", "sqrtsoftplus"},
          {"topk_method", "noaux_tc"},
          {"norm_topk_prob", true},
          {"routed_scaling_factor", 1.5}};
}

json::Object sparse_attention() {
  return {{"sliding_window", 8},
          {"compress_ratios", Array{0, 0, 2, 2, 1, 1, 1, 0, 0}},
          {"kv_source_layer_ids", Array{2, 4}},
          {"index_source_layer_ids", Array{2, 4, 5}},
          {"index_n_heads", 8},
          {"index_head_dim", 128},
          {"index_topk", 6},
          {"candidate_source_layer_id", 4},
          {"candidate_topk_blocks", 3},
          {"candidate_block_size", 4},
          {"hc_mult", 4},
          {"hc_sinkhorn_iters", 20},
          {"hc_eps", 1e-6}};
}

json::Object tables_and_drafts() {
  return {{"engram_layer_ids", Array(std::begin(kEngramLayers), std::end(kEngramLayers))},
          {"engram_num_embeddings", engram_rows()},
          {"engram_max_ngram_size", kMaxNgram},
          {"engram_vocab_size", kEngramVocabSize},
          {"engram_n_heads", kEngramHeads},
          {"engram_head_dim", kEngramDim},
          {"engram_pad_token_id", id_of("<｜▁pad▁｜>")},
          {"engram_compressed_vocab_size", made_token_map().compressed_size()},
          {"num_nextn_predict_layers", 2},
          {"dspark_block_size", 3},
          {"dspark_noise_token_id", id_of("<｜System｜>")},
          {"dspark_target_layer_ids", Array{4, 5, 6}},
          {"dspark_markov_rank", 32},
          {"dspark_n_routed_experts", 2},
          {"dspark_num_experts_per_tok", 1}};
}

Value vision() {
  return object({{"model_type", "deepseek_v41_vision"},
                 {"num_hidden_layers", 1},
                 {"hidden_size", 64},
                 {"num_attention_heads", 2},
                 {"intermediate_size", 96},
                 {"patch_size", 14},
                 {"rope_theta", 10000},
                 {"downsample_ratio", 3},
                 {"max_image_tokens", 64},
                 {"min_pixels", 4096},
                 {"max_wh_ratio", nullptr}});
}

}  // namespace

std::string config_json(const Options& options) {
  json::Object text = backbone();
  for (auto&& part : {sparse_attention(), tables_and_drafts()}) text.insert(text.end(), part.begin(), part.end());
  Value root = object({{"architectures", Array{"DeepseekV41ForCausalLM"}},
                       {"model_type", "deepseek_v41"},
                       {"dtype", "bfloat16"},
                       {"transformers_version", "5.6.0"},
                       {"bos_token_id", id_of("<｜begin▁of▁sentence｜>")},
                       {"eos_token_id", id_of("<｜end▁of▁sentence｜>")},
                       {"pad_token_id", id_of("<｜▁pad▁｜>")},
                       {"image_token_id", id_of("<｜deepseek_image｜>")},
                       {"quantization_config", object({{"quant_method", "fp8"},
                                                       {"activation_scheme", "dynamic"},
                                                       {"weight_block_size", Array{32, 32}},
                                                       {"scale_fmt", "ue8m0"},
                                                       {"expert_dtype", "fp4"}})},
                       {"text_config", Value(std::move(text))}});
  if (options.vision) root.set("vision_config", vision());
  return json::dump(root, json::Style::kPretty) + "\n";
}

Result<model::Config> config(const Options& options) {
  return model::parse_config(config_json(options), "config.json of the made model");
}

}  // namespace dsf::made_checkpoint
