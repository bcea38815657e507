#include "mini.h"

#include <doctest/doctest.h>

#include <cmath>

#include "dsf/base/random.h"
#include "dsf/exl3_pack/folder.h"
#include "dsf/io/file.h"
#include "dsf/model/weights.h"

namespace dsf::quantize_test {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
  "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "image_token_id": 3,
  "text_config": {
    "model_type": "deepseek_v41_text", "vocab_size": 128, "hidden_size": 128, "moe_intermediate_size": 128,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128, "qk_rope_head_dim": 32,
    "q_lora_rank": 128, "o_lora_rank": 128, "o_groups": 2, "hidden_act": "silu", "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-20, "max_position_embeddings": 64, "rope_theta": 10000,
    "rope_scaling": {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 64},
    "compress_rope_theta": 160000, "n_routed_experts": 2, "n_shared_experts": 1, "num_experts_per_tok": 1,
    "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5,
    "sliding_window": 8, "compress_ratios": [2, 0], "kv_source_layer_ids": [0], "index_source_layer_ids": [0],
    "index_n_heads": 2, "index_head_dim": 128, "index_topk": 6, "candidate_source_layer_id": 0,
    "candidate_topk_blocks": 3, "candidate_block_size": 4, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6,
    "engram_layer_ids": [], "num_nextn_predict_layers": 1, "dspark_block_size": 3, "dspark_noise_token_id": 4,
    "dspark_target_layer_ids": [0], "dspark_markov_rank": 32, "dspark_n_routed_experts": 2,
    "dspark_num_experts_per_tok": 1
  }
})";

}  // namespace

model::Config mini_config() {
  auto config = model::parse_config(kConfig, "mini");
  REQUIRE_MESSAGE(config, (config ? std::string() : config.error().line()));
  return *config;
}

void write_mini(const std::filesystem::path& dir) {
  auto folder = exl3_pack::FolderWriter::create(dir);
  REQUIRE(folder);
  SplitMix64 random(5);
  for (const model::Weight& w : model::all_weights(mini_config())) {
    const bool plain = w.kind == model::WeightKind::kPlain;
    const tensor::DType dtype = plain ? w.dtype : tensor::DType::kBF16;
    std::vector<float> values(static_cast<size_t>(tensor::element_count(w.shape).value_or(0)));
    const double size = plain ? 1 : std::sqrt(3.0 / static_cast<double>(w.shape[1]));
    for (float& v : values) v = static_cast<float>(size * (2 * random.uniform() - 1));
    const std::string name = plain ? w.name : w.name + ".weight";
    folder->add(1, {{name, dtype, w.shape, safetensors::from_f32(dtype, values)}});
  }
  REQUIRE(folder->finish());
  REQUIRE(io::write_file_atomic(dir / "config.json", kConfig));
}

}  // namespace dsf::quantize_test
