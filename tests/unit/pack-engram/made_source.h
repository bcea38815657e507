#pragma once
// A folder with a small configuration and Engram tables in two shards, as dsf-pack-engram meets them, and a runner
// without argv.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "dsf/io/file.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/folders.h"
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
  // kTiny: a few hundred rows a layer. kBlocks: four blocks of 65,536 rows a layer, for runs that are stopped inside a
  // file.
  enum class Size { kTiny, kBlocks };
  TempDir dir;
  std::filesystem::path shard[2]{dir / "model-00002-of-00003.safetensors", dir / "model-00003-of-00003.safetensors"};

  explicit MadeSource(Size size = Size::kTiny) {
    REQUIRE(io::write_file_atomic(dir / "config.json", kTinyConfig));
    if (size == Size::kBlocks) {
      replace_text(dir / "config.json", "[462, 630]", "[240192, 240640]");
      replace_text(dir / "config.json", "\"engram_vocab_size\": 64", "\"engram_vocab_size\": 40000");
    }
    // The first shard of the release is not fetched, and not needed.
    std::vector<safetensors::IndexEntry> index{{"embed.weight", "model-00001-of-00003.safetensors"}};
    const int64_t tiny[] = {462, 630}, blocks[] = {240192, 240640};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = size == Size::kTiny ? tiny[i] : blocks[i];
      const std::string base = std::string("layers.") + (i == 0 ? "1" : "4") + ".engram.embed.";
      const auto seed = static_cast<uint32_t>(i);
      const std::vector<safetensors::TensorData> tensors{
          {base + "scale", tensor::DType::kF8E8M0, {rows, 2}, made_bytes(rows * 2, 20 + seed)},
          {base + "weight", tensor::DType::kF8E4M3, {rows, 64}, made_bytes(rows * 64, 10 + seed)}};
      REQUIRE(safetensors::write_file(shard[i], tensors));
      for (const auto& t : tensors) index.push_back({t.name, shard[i].filename().string()});
    }
    REQUIRE(safetensors::write_index(dir / "model.safetensors.index.json", index, 0));
  }
};

inline Ran run_pack(const pack_engram::RawOptions& raw) {
  return run_plan(pack_engram::make_plan(raw), pack_engram::run);
}
inline pack_engram::RawOptions packing(const MadeSource& source, const std::filesystem::path& output,
                                       const std::string& rank = "0", int64_t world = 1) {
  pack_engram::RawOptions raw;
  raw.source = source.dir.path();
  raw.common.output = output;
  raw.rank = rank;
  raw.world_size = world;
  return raw;
}
inline pack_engram::RawOptions checking(const MadeSource& source, const std::filesystem::path& packs,
                                        const std::string& rank = "0", int64_t world = 1) {
  pack_engram::RawOptions raw = packing(source, "", rank, world);
  raw.check = packs;
  return raw;
}

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
