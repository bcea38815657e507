#include "dsf/model/memory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/model/weights.h"

namespace dsf::model {
namespace {

// Device context, collectives' buffers, captured graphs: 5 to 7 GiB in published two-node engines (gb10.md 2.6).
constexpr uint64_t kDeviceReserve = 6 * kGiB;
// Thread stacks, tokenizer, HTTP buffers of the CPU server.
constexpr uint64_t kHostReserve = 256 * kMiB;

bool has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

// Cut over ranks: attention heads, output groups, expert width, rows of the head (split.h). Everything else stands whole on every rank.
bool is_split(std::string_view name) {
  constexpr std::array<std::string_view, 6> kParts{".attn.wq_b", ".attn.wo_a", ".attn.wo_b", ".attn.attn_sink", ".ffn.experts.", ".ffn.shared_experts."};
  if (has(name, "markov_head") || has(name, "confidence_head") || has(name, "engram")) return false;
  if (name.starts_with("head.")) return true;
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view p) { return has(name, p); });
}
bool is_vision(std::string_view name) { return name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_"); }
bool is_table(std::string_view name) { return has(name, ".engram.embed."); }

uint64_t expanded_bytes(const Config& c) {
  uint64_t elements = 0;
  for (const auto& list : {text_weights(c), dspark_weights(c)})
    for (const Weight& w : list)
      if (w.kind != WeightKind::kTableFp8) elements += static_cast<uint64_t>(tensor::element_count(w.shape).value_or(0));
  return elements * 4;
}

// One position of a window ring or one compressed row: latent values e4m3 with a scale per 32, or e2m1 with an e4m3 scale per 16.
uint64_t window_row_bytes(const Config& c, Residence r) {
  const auto hd = static_cast<uint64_t>(c.head_dim);
  return r == Residence::kExpanded ? hd * 4 : hd + ceil_div<uint64_t>(hd, 32);
}
uint64_t compressed_row_bytes(const Config& c, Residence r) {
  const auto hd = static_cast<uint64_t>(c.head_dim), ik = static_cast<uint64_t>(c.index_head_dim);
  if (r == Residence::kExpanded) return (hd + ik) * 4;
  return hd / 2 + ceil_div<uint64_t>(hd, 16) + ik / 2 + ceil_div<uint64_t>(ik, 32);
}

uint64_t cache_per_session(const Config& c, const MemoryRequest& r) {
  const auto rings = static_cast<uint64_t>(c.num_hidden_layers + c.num_nextn_predict_layers);
  const auto rows = static_cast<uint64_t>(c.sliding_window + r.max_step_tokens);
  // Compressors keep the open group's projections: two f32 vectors over a step's rows.
  const uint64_t carry = static_cast<uint64_t>(c.kv_source_layer_ids.size()) * 2 * static_cast<uint64_t>(r.max_step_tokens + 2) * static_cast<uint64_t>(c.head_dim) * 4;
  return rings * rows * window_row_bytes(c, r.residence) + carry;
}

// The widest moment of a step: streams and their update, one layer's attention, one layer's experts, and the logits.
uint64_t workspace_bytes(const Config& c, const MemoryRequest& r) {
  const auto n = static_cast<uint64_t>(r.max_step_tokens), d = static_cast<uint64_t>(c.hidden_size), s = static_cast<uint64_t>(c.hc_mult);
  const uint64_t attention = static_cast<uint64_t>(c.num_attention_heads * c.head_dim) * 2 + static_cast<uint64_t>(c.index_n_heads * c.index_head_dim);
  const uint64_t experts = static_cast<uint64_t>((c.num_experts_per_tok + c.n_shared_experts) * c.moe_intermediate_size) * 2;
  const uint64_t engram = static_cast<uint64_t>(c.engram_columns() * c.engram_head_dim) + (s + 1) * d;
  const uint64_t selection = static_cast<uint64_t>(c.index_topk) * 2;
  const uint64_t values = 3 * s * d + 2 * d + std::max({attention, experts, engram}) + selection;
  const uint64_t scores = static_cast<uint64_t>(r.max_model_len) * 4 * std::min<uint64_t>(n, 64);  // index scores, a slice of rows at a time
  return n * values * 4 + scores + std::min<uint64_t>(n, 256) * static_cast<uint64_t>(c.vocab_size) * 4;
}

}  // namespace

uint64_t resident_bytes(const StoredTensor& t, int rank, int world_size) {
  if (is_table(t.name)) return 0;
  if (is_vision(t.name)) return rank == 0 ? t.bytes : 0;
  return is_split(t.name) ? ceil_div(t.bytes, static_cast<uint64_t>(world_size)) : t.bytes;
}

uint64_t cache_bytes_per_token(const Config& c, Residence residence) {
  const uint64_t row = compressed_row_bytes(c, residence);
  uint64_t twice = 0;
  for (const int64_t id : c.kv_source_layer_ids) twice += 2 * row / static_cast<uint64_t>(std::max<int64_t>(1, c.compress_ratios[static_cast<size_t>(id)]));
  return ceil_div<uint64_t>(twice, 2);
}

Result<MemoryPlan> plan_memory(const Config& config, const std::vector<StoredTensor>& tensors, const MemoryRequest& r) {
  if (r.world_size < 1 || r.rank < 0 || r.rank >= r.world_size) return fail(Code::kUsage, "rank " + std::to_string(r.rank), "is not a rank of " + std::to_string(r.world_size), {}, "rank");
  constexpr int64_t kMax = int64_t{1} << 32;
  if (r.max_model_len < 1 || r.max_model_len > kMax || r.max_sessions < 1 || r.max_sessions > (1 << 20) || r.max_step_tokens < 1 || r.max_step_tokens > (1 << 24))
    return fail(Code::kUsage, "memory plan", "model length, sessions and step tokens must be positive and sane", {}, "usage");
  MemoryPlan p;
  if (r.residence == Residence::kExpanded) p.weights = expanded_bytes(config);
  else
    for (const StoredTensor& t : tensors) p.weights += resident_bytes(t, r.rank, r.world_size);
  p.cache_per_token = cache_bytes_per_token(config, r.residence);
  p.cache_per_session = cache_per_session(config, r);
  const auto sessions = static_cast<uint64_t>(r.max_sessions);
  const auto growing = checked_mul(p.cache_per_token, static_cast<uint64_t>(r.max_model_len));
  const auto caches = growing ? checked_mul(*growing + p.cache_per_session, sessions) : std::nullopt;
  if (!caches) return fail(Code::kUsage, "memory plan", "cache size overflows", "lower the model length or the sessions", "usage");
  p.caches = *caches;
  p.workspace = workspace_bytes(config, r);
  p.reserve = r.residence == Residence::kExpanded ? kHostReserve : kDeviceReserve;
  return p;
}

Result<uint64_t> available_memory() {
  DSF_TRY(const std::string text, io::read_text("/proc/meminfo", 1 << 20));
  const std::string_view key = "MemAvailable:";
  const size_t at = text.find(key);
  if (at == std::string::npos) return fail(Code::kLocal, "/proc/meminfo", "has no MemAvailable", {}, "meminfo");
  std::string_view rest = std::string_view(text).substr(at + key.size());
  rest = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto kib = parse_u64(rest.substr(0, rest.find(' ')));
  const auto bytes = kib ? checked_mul(*kib, kKiB) : std::nullopt;
  if (!bytes) return fail(Code::kLocal, "/proc/meminfo", "MemAvailable is not a number", {}, "meminfo");
  return *bytes;
}

}  // namespace dsf::model
