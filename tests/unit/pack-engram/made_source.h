#pragma once
// A folder with a small configuration and Engram tables in two shards, as dsf-pack-engram meets them, and a runner without argv.
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "dsf/io/file.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"
#include "tools/pack-engram/run.h"

namespace dsf::test {

inline constexpr const char* kTinyConfig = R"({"model_type": "deepseek_v41", "text_config": {
  "vocab_size": 256, "hidden_size": 128, "moe_intermediate_size": 64, "num_hidden_layers": 5, "num_attention_heads": 4, "head_dim": 128,
  "qk_rope_head_dim": 32, "q_lora_rank": 64, "o_lora_rank": 64, "o_groups": 2, "max_position_embeddings": 4096, "n_routed_experts": 6,
  "num_experts_per_tok": 2, "sliding_window": 8, "compress_ratios": [0, 0, 0, 0, 0], "index_n_heads": 8, "index_head_dim": 64, "index_topk": 6,
  "hc_mult": 4, "hc_sinkhorn_iters": 20, "engram_layer_ids": [1, 4], "engram_num_embeddings": [462, 630], "engram_max_ngram_size": 4,
  "engram_vocab_size": 64, "engram_n_heads": 2, "engram_head_dim": 64, "engram_pad_token_id": 2, "engram_compressed_vocab_size": 200}})";

// Pseudo-random bytes; equal seeds give equal bytes.
inline std::vector<std::byte> made_bytes(int64_t n, uint32_t seed) {
  std::vector<std::byte> out;
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<std::byte>(seed >> 24));
  }
  return out;
}

struct MadeSource {
  TempDir dir;
  std::filesystem::path shard[2]{dir / "model-00002-of-00003.safetensors", dir / "model-00003-of-00003.safetensors"};

  MadeSource() {
    REQUIRE(io::write_file_atomic(dir / "config.json", kTinyConfig));
    std::vector<safetensors::IndexEntry> index{{"embed.weight", "model-00001-of-00003.safetensors"}};  // not fetched, not needed
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = i == 0 ? 462 : 630;
      const std::string base = std::string("layers.") + (i == 0 ? "1" : "4") + ".engram.embed.";
      const auto seed = static_cast<uint32_t>(i);
      const std::vector<safetensors::TensorData> tensors{{base + "scale", tensor::DType::kF8E8M0, {rows, 2}, made_bytes(rows * 2, 20 + seed)},
                                                         {base + "weight", tensor::DType::kF8E4M3, {rows, 64}, made_bytes(rows * 64, 10 + seed)}};
      REQUIRE(safetensors::write_file(shard[i], tensors));
      for (const auto& t : tensors) index.push_back({t.name, shard[i].filename().string()});
    }
    REQUIRE(safetensors::write_index(dir / "model.safetensors.index.json", index, 0));
  }
};

struct Ran {
  int code;
  std::string out, err;  // err holds the error line, too, when the run stopped as a whole
};
inline Ran run_pack(const pack_engram::RawOptions& raw) {
  std::ostringstream out, err;
  const auto plan = pack_engram::make_plan(raw);
  if (!plan) return {static_cast<int>(plan.error().code), "", plan.error().line()};
  const auto rc = pack_engram::run(*plan, out, err);
  if (!rc) return {static_cast<int>(rc.error().code), out.str(), err.str() + rc.error().line() + "\n"};
  return {*rc, out.str(), err.str()};
}
inline pack_engram::RawOptions packing(const MadeSource& source, const std::filesystem::path& output, const std::string& rank = "0", int64_t world = 1) {
  pack_engram::RawOptions raw;
  raw.source = source.dir.path();
  raw.common.output = output;
  raw.rank = rank;
  raw.world_size = world;
  return raw;
}
inline pack_engram::RawOptions checking(const MadeSource& source, const std::filesystem::path& packs, const std::string& rank = "0", int64_t world = 1) {
  pack_engram::RawOptions raw = packing(source, "", rank, world);
  raw.check = packs;
  return raw;
}

// Changes one byte in place.
inline void flip(const std::filesystem::path& file, uint64_t at) {
  const auto fd = io::open_write(file, true);
  REQUIRE(fd);
  std::byte b{};
  REQUIRE(io::read_at(*fd, at, {&b, 1}));
  b ^= std::byte{0x10};
  REQUIRE(io::write_at(*fd, at, {&b, 1}));
}
inline void cut(const std::filesystem::path& file, uint64_t bytes) { std::filesystem::resize_file(file, std::filesystem::file_size(file) - bytes); }

// Names in a folder that are neither packs, records nor the lock: leftovers.
inline std::vector<std::string> leftovers(const std::filesystem::path& dir) {
  std::vector<std::string> out;
  for (const auto& e : std::filesystem::directory_iterator(dir)) {
    const std::string name = e.path().filename().string();
    if (!name.starts_with("engram-") && name != ".dsf-pack-engram.lock") out.push_back(name);
  }
  return out;
}

}  // namespace dsf::test
