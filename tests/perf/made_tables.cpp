// Engram tables of any size for measuring dsf-pack-engram: made_tables DIR VOCAB writes config.json, one shard and the
// index of one layer with 24 hash heads of about VOCAB rows (264 bytes each), filled with pseudo-random bytes.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"

namespace {

using namespace dsf;

bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

// The sum of the primes that the 24 heads take: the table's rows.
int64_t table_rows(int64_t vocab) {
  int64_t rows = 0, prime = vocab - 1;
  for (int head = 0; head < 24; ++head) {
    do ++prime;
    while (!is_prime(prime));
    rows += prime;
  }
  return rows;
}

std::string config(int64_t vocab, int64_t rows) {
  json::Value text = json::Object{{"vocab_size", 256},
                                  {"hidden_size", 128},
                                  {"moe_intermediate_size", 64},
                                  {"num_hidden_layers", 2},
                                  {"num_attention_heads", 4},
                                  {"head_dim", 128},
                                  {"qk_rope_head_dim", 32},
                                  {"q_lora_rank", 64},
                                  {"o_lora_rank", 64},
                                  {"o_groups", 2},
                                  {"max_position_embeddings", 4096},
                                  {"n_routed_experts", 6},
                                  {"num_experts_per_tok", 2},
                                  {"sliding_window", 8},
                                  {"compress_ratios", json::Array{0, 0}},
                                  {"index_n_heads", 8},
                                  {"index_head_dim", 64},
                                  {"index_topk", 6},
                                  {"hc_mult", 4},
                                  {"hc_sinkhorn_iters", 20},
                                  {"engram_layer_ids", json::Array{1}},
                                  {"engram_num_embeddings", json::Array{rows}},
                                  {"engram_max_ngram_size", 4},
                                  {"engram_vocab_size", vocab},
                                  {"engram_n_heads", 8},
                                  {"engram_head_dim", 256},
                                  {"engram_pad_token_id", 2},
                                  {"engram_compressed_vocab_size", 200}};
  return json::dump(json::Object{{"model_type", "deepseek_v41"}, {"text_config", std::move(text)}});
}

std::vector<std::byte> noise(size_t n) {
  std::vector<std::byte> out(n);
  uint64_t state = 88172645463325252u;
  for (size_t at = 0; at + 8 <= n; at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    store_le(out.data() + at, state);
  }
  return out;
}

Result<void> write(const std::filesystem::path& dir, int64_t vocab) {
  const int64_t rows = table_rows(vocab);
  const std::string base = "layers.1.engram.embed.", shard = "model-00001-of-00001.safetensors";
  DSF_OK(io::make_dirs(dir));
  DSF_OK(io::write_file_atomic(dir / "config.json", config(vocab, rows)));
  std::vector<safetensors::TensorData> tensors;
  tensors.push_back({base + "scale", tensor::DType::kF8E8M0, {rows, 8}, noise(static_cast<size_t>(rows) * 8)});
  tensors.push_back({base + "weight", tensor::DType::kF8E4M3, {rows, 256}, noise(static_cast<size_t>(rows) * 256)});
  DSF_OK(safetensors::write_file(dir / shard, tensors));
  const std::vector<safetensors::IndexEntry> index{{base + "scale", shard}, {base + "weight", shard}};
  return safetensors::write_index(dir / "model.safetensors.index.json", index, static_cast<uint64_t>(rows) * 264);
}

}  // namespace

int main(int argc, char** argv) {
  const auto vocab = argc == 3 ? dsf::parse_i64(argv[2]) : std::nullopt;
  if (!vocab || *vocab < 100) {
    std::fprintf(stderr, "usage: made_tables DIR VOCAB\n");
    return 2;
  }
  if (const auto done = write(argv[1], *vocab); !done) {
    std::fprintf(stderr, "made_tables: %s\n", done.error().line().c_str());
    return static_cast<int>(done.error().code);
  }
  return 0;
}
