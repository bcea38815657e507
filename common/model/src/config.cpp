#include "dsf/model/config.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::model {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 31;  // keeps every product of two dimensions inside int64
constexpr int64_t kMaxLayers = 4096;

struct IntField {
  const char* key;
  int64_t Config::*member;
  int64_t min;
};

// Required integers of the text configuration.
constexpr IntField kRequired[] = {
    {"vocab_size", &Config::vocab_size, 1},
    {"hidden_size", &Config::hidden_size, 1},
    {"moe_intermediate_size", &Config::moe_intermediate_size, 1},
    {"num_hidden_layers", &Config::num_hidden_layers, 1},
    {"num_attention_heads", &Config::num_attention_heads, 1},
    {"head_dim", &Config::head_dim, 1},
    {"qk_rope_head_dim", &Config::qk_rope_head_dim, 2},
    {"q_lora_rank", &Config::q_lora_rank, 1},
    {"o_lora_rank", &Config::o_lora_rank, 1},
    {"o_groups", &Config::o_groups, 1},
    {"max_position_embeddings", &Config::max_position_embeddings, 1},
    {"n_routed_experts", &Config::n_routed_experts, 1},
    {"num_experts_per_tok", &Config::num_experts_per_tok, 1},
    {"sliding_window", &Config::sliding_window, 1},
    {"index_n_heads", &Config::index_n_heads, 1},
    {"index_head_dim", &Config::index_head_dim, 1},
    {"index_topk", &Config::index_topk, 1},
    {"hc_mult", &Config::hc_mult, 1},
    {"hc_sinkhorn_iters", &Config::hc_sinkhorn_iters, 1},
};
// Optional ones: absent keeps the default of the struct.
constexpr IntField kOptional[] = {
    {"n_shared_experts", &Config::n_shared_experts, 0},
    {"candidate_source_layer_id", &Config::candidate_source_layer_id, -1},
    {"candidate_topk_blocks", &Config::candidate_topk_blocks, 0},
    {"candidate_block_size", &Config::candidate_block_size, 0},
    {"engram_max_ngram_size", &Config::engram_max_ngram_size, 0},
    {"engram_vocab_size", &Config::engram_vocab_size, 0},
    {"engram_n_heads", &Config::engram_n_heads, 0},
    {"engram_head_dim", &Config::engram_head_dim, 0},
    {"engram_compressed_vocab_size", &Config::engram_compressed_vocab_size, 0},
    {"num_nextn_predict_layers", &Config::num_nextn_predict_layers, 0},
    {"dspark_block_size", &Config::dspark_block_size, 0},
    {"dspark_noise_token_id", &Config::dspark_noise_token_id, 0},
    {"dspark_markov_rank", &Config::dspark_markov_rank, 0},
    {"dspark_n_routed_experts", &Config::dspark_n_routed_experts, 0},
    {"dspark_num_experts_per_tok", &Config::dspark_num_experts_per_tok, 0},
};
constexpr std::pair<const char*, double Config::*> kReals[] = {
    {"swiglu_limit", &Config::swiglu_limit}, {"rms_norm_eps", &Config::rms_norm_eps},
    {"rope_theta", &Config::rope_theta},     {"compress_rope_theta", &Config::compress_rope_theta},
    {"routed_scaling_factor", &Config::routed_scaling_factor}, {"gate_temp", &Config::gate_temp}, {"hc_eps", &Config::hc_eps},
};
constexpr std::pair<const char*, std::vector<int64_t> Config::*> kLists[] = {
    {"compress_ratios", &Config::compress_ratios},
    {"kv_source_layer_ids", &Config::kv_source_layer_ids},
    {"index_source_layer_ids", &Config::index_source_layer_ids},
    {"engram_layer_ids", &Config::engram_layer_ids},
    {"engram_num_embeddings", &Config::engram_num_embeddings},
    {"dspark_target_layer_ids", &Config::dspark_target_layer_ids},
};

Result<void> read_text(const json::Cursor& text, Config& c) {
  for (const IntField& f : kRequired) {
    DSF_TRY(c.*f.member, text.integer_at(f.key, f.min, kMaxDim));
  }
  for (const IntField& f : kOptional) {
    DSF_TRY(c.*f.member, text.integer_or(f.key, c.*f.member, f.min, int64_t{1} << 40));
  }
  for (const auto& [key, member] : kReals) {
    DSF_TRY(c.*member, text.number_or(key, c.*member));
  }
  for (const auto& [key, member] : kLists) {
    if (const auto list = text.maybe(key)) {
      DSF_TRY(c.*member, list->integers(0));
    }
  }
  DSF_TRY(c.norm_topk_prob, text.boolean_or("norm_topk_prob", true));
  // Two names are in use for the pad id; equal where both stand.
  DSF_TRY(c.engram_pad_token_id, text.integer_or("engram_pad_token_id", c.engram_pad_token_id, 0));
  DSF_TRY(c.engram_pad_token_id, text.integer_or("engram_pad_id", c.engram_pad_token_id, 0));
  if (const auto scaling = text.maybe("rope_scaling")) {
    DSF_TRY(std::string type, scaling->string_or("rope_type", ""));
    if (type.empty()) {
      DSF_TRY(type, scaling->string_or("type", ""));
    }
    if (type != "yarn") return scaling->fail("rope_type " + json::quote(type) + " is not supported, yarn expected");
    c.rope_scaling.enabled = true;
    DSF_TRY(c.rope_scaling.factor, scaling->number_at("factor"));
    DSF_TRY(c.rope_scaling.beta_fast, scaling->number_or("beta_fast", 32));
    DSF_TRY(c.rope_scaling.beta_slow, scaling->number_or("beta_slow", 1));
    DSF_TRY(c.rope_scaling.original_max_position_embeddings, scaling->integer_at("original_max_position_embeddings", 1));
  }
  return {};
}

Result<void> read_ids(const json::Cursor& root, const json::Cursor& text, Config& c) {
  const std::pair<const char*, int64_t Config::*> ids[] = {{"bos_token_id", &Config::bos_token_id}, {"eos_token_id", &Config::eos_token_id},
                                                           {"pad_token_id", &Config::pad_token_id}, {"image_token_id", &Config::image_token_id}};
  for (const auto& [key, member] : ids) {
    DSF_TRY(c.*member, text.integer_or(key, c.*member, 0));
    DSF_TRY(c.*member, root.integer_or(key, c.*member, 0));
  }
  return {};
}

Result<void> read_vision(const json::Cursor& vision, Config& c) {
  const std::pair<const char*, int64_t VisionConfig::*> fields[] = {
      {"num_hidden_layers", &VisionConfig::num_hidden_layers}, {"hidden_size", &VisionConfig::hidden_size},
      {"num_attention_heads", &VisionConfig::num_attention_heads}, {"intermediate_size", &VisionConfig::intermediate_size},
      {"patch_size", &VisionConfig::patch_size}, {"downsample_ratio", &VisionConfig::downsample_ratio}};
  for (const auto& [key, member] : fields) {
    DSF_TRY(c.vision.*member, vision.integer_at(key, 1, kMaxDim));
  }
  c.has_vision = true;
  return {};
}

bool ascending_below(const std::vector<int64_t>& v, int64_t limit) {
  return std::adjacent_find(v.begin(), v.end(), std::greater_equal<>()) == v.end() && (v.empty() || (v.front() >= 0 && v.back() < limit));
}

// The rules between fields that the engine, the packer and the tensor table rely on; the text of the first broken one.
std::string broken_rule(const Config& c) {
  const int64_t n_layers = c.num_hidden_layers;
  if (n_layers > kMaxLayers) return "num_hidden_layers is beyond " + std::to_string(kMaxLayers);
  if (c.num_nextn_predict_layers > kMaxLayers) return "num_nextn_predict_layers is beyond " + std::to_string(kMaxLayers);
  if (std::cmp_not_equal(c.compress_ratios.size(), n_layers + c.num_nextn_predict_layers)) return "compress_ratios needs one entry per layer and DSpark block";
  if (!ascending_below(c.kv_source_layer_ids, n_layers)) return "kv_source_layer_ids must ascend and name layers";
  if (!ascending_below(c.index_source_layer_ids, n_layers)) return "index_source_layer_ids must ascend and name layers";
  if (c.qk_rope_head_dim % 2 != 0 || c.qk_rope_head_dim > c.head_dim) return "qk_rope_head_dim must be even and at most head_dim";
  if (c.qk_rope_head_dim > c.index_head_dim) return "qk_rope_head_dim must be at most index_head_dim";
  if (c.num_attention_heads % c.o_groups != 0) return "o_groups must divide num_attention_heads";
  if (c.num_experts_per_tok > c.n_routed_experts) return "num_experts_per_tok is beyond n_routed_experts";
  if (c.hc_mult > 16) return "hc_mult is beyond 16";
  for (int64_t i = 0; i < n_layers; ++i) {
    const int64_t r = c.compress_ratios[static_cast<size_t>(i)];
    if (r > 2) return "compress_ratios[" + std::to_string(i) + "] is not 0, 1 or 2";
    const auto at_or_below = [i](const std::vector<int64_t>& v) { return !v.empty() && v.front() <= i; };
    if (r > 0 && !(at_or_below(c.kv_source_layer_ids) && at_or_below(c.index_source_layer_ids)))
      return "layer " + std::to_string(i) + " reads compressed rows, but no source layer stands before it";
  }
  for (int64_t id : c.kv_source_layer_ids) {
    if (c.compress_ratios[static_cast<size_t>(id)] == 0) return "kv source layer " + std::to_string(id) + " has ratio 0";
    if (!std::binary_search(c.index_source_layer_ids.begin(), c.index_source_layer_ids.end(), id))
      return "kv source layer " + std::to_string(id) + " is not an index source";
  }
  for (int64_t id : c.index_source_layer_ids)
    if (c.compress_ratios[static_cast<size_t>(id)] == 0) return "index source layer " + std::to_string(id) + " has ratio 0";
  if (c.candidate_source_layer_id >= 0) {
    if (!std::binary_search(c.index_source_layer_ids.begin(), c.index_source_layer_ids.end(), c.candidate_source_layer_id)) return "candidate_source_layer_id is not an index source";
    if (c.candidate_topk_blocks < 1 || c.candidate_block_size < 1) return "candidate_topk_blocks and candidate_block_size must be at least 1";
  }
  if (!ascending_below(c.engram_layer_ids, n_layers)) return "engram_layer_ids must ascend and name layers";
  if (c.engram_layer_ids.size() != c.engram_num_embeddings.size()) return "engram_num_embeddings needs one entry per Engram layer";
  if (!c.engram_layer_ids.empty() && (c.engram_max_ngram_size < 2 || c.engram_max_ngram_size > 64 || c.engram_n_heads < 1 || c.engram_n_heads > 1024 || c.engram_head_dim < 1 || c.engram_head_dim > kMaxDim || c.engram_vocab_size < 1 || c.engram_compressed_vocab_size < 1))
    return "the engram_* sizes must be positive (engram_max_ngram_size from 2)";
  if (c.num_nextn_predict_layers > 0) {
    if (c.dspark_block_size < 1 || c.dspark_n_routed_experts < 1 || c.dspark_num_experts_per_tok < 1 || c.dspark_markov_rank < 1) return "the dspark_* sizes must be positive";
    if (c.dspark_num_experts_per_tok > c.dspark_n_routed_experts) return "dspark_num_experts_per_tok is beyond dspark_n_routed_experts";
    if (c.dspark_target_layer_ids.empty() || !ascending_below(c.dspark_target_layer_ids, n_layers)) return "dspark_target_layer_ids must ascend and name layers";
    if (c.dspark_noise_token_id >= c.vocab_size) return "dspark_noise_token_id is beyond vocab_size";
  }
  for (int64_t id : {c.bos_token_id, c.eos_token_id, c.pad_token_id})
    if (id >= c.vocab_size) return "a special token id is beyond vocab_size";
  return "";
}

}  // namespace

int64_t Config::engram_index(int64_t layer) const {
  const auto it = std::find(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return it == engram_layer_ids.end() ? -1 : it - engram_layer_ids.begin();
}

Result<Config> parse_config(std::string_view json_text, std::string_view subject) {
  DSF_TRY(const json::Value document, json::parse(json_text, subject));
  const json::Cursor root(document, std::string(subject));
  if (!document.is_object()) return root.fail("object expected, got " + std::string(document.type_name()));
  DSF_TRY(const std::string type, root.string_or("model_type", ""));
  if (!type.empty() && !type.starts_with("deepseek_v41"))
    return root.fail("model_type is " + json::quote(type) + ", deepseek_v41 expected", "pass the folder of a DeepSeek-V4.1 checkpoint");
  const auto nested = root.maybe("text_config");
  const json::Cursor& text = nested ? *nested : root;

  Config c;
  DSF_OK(read_text(text, c));
  DSF_OK(read_ids(root, text, c));
  if (const auto vision = root.maybe("vision_config")) DSF_OK(read_vision(*vision, c));
  if (const std::string broken = broken_rule(c); !broken.empty()) return text.fail(broken);
  return c;
}

std::string canonical_text(const Config& c) {
  std::string out;
  const auto line = [&](const std::string& key, const std::string& value) { out += key + " " + value + "\n"; };
  const auto real = [](double v) {
    char text[40];
    return std::string(text, std::to_chars(text, text + sizeof text, v).ptr);
  };
  for (const IntField& f : kRequired) line(f.key, std::to_string(c.*f.member));
  for (const IntField& f : kOptional) line(f.key, std::to_string(c.*f.member));
  for (const auto& [key, member] : kReals) line(key, real(c.*member));
  for (const auto& [key, member] : kLists) {
    std::string values;
    for (const int64_t v : c.*member) values += (values.empty() ? "" : ",") + std::to_string(v);
    line(key, values);
  }
  line("ids", std::to_string(c.bos_token_id) + "," + std::to_string(c.eos_token_id) + "," + std::to_string(c.pad_token_id) + "," + std::to_string(c.engram_pad_token_id));
  line("norm_topk_prob", c.norm_topk_prob ? "1" : "0");
  const YarnScaling& y = c.rope_scaling;
  line("rope_scaling", y.enabled ? real(y.factor) + "," + real(y.beta_fast) + "," + real(y.beta_slow) + "," + std::to_string(y.original_max_position_embeddings) : "none");
  return out;
}

Result<Config> load_config(const std::filesystem::path& config_json) {
  DSF_TRY(const std::string text, io::read_text(config_json, 16 << 20));
  return parse_config(text, config_json.string());
}

}  // namespace dsf::model
