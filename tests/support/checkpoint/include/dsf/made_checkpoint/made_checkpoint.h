#pragma once
// The checkpoint this project makes itself: a small random model in exactly the release's layout, the same model as an
// EXL3 pack, and ways to damage either. For tests and demonstrations; its answers mean nothing.
//
// Everything is a function of the options: the same seed gives the same bytes on every machine. Functions write into
// folders the caller names, file by file and each atomically, and may run on several threads for different folders.
// Errors: kLocal from writing. Source: model.md 1, 2, 9, 11; exl3.md 2, 5, 6; engram.md 1, 2, 4; serving.md 1.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"

namespace dsf::made_checkpoint {

struct Options {
  uint64_t seed = 1;
  int threads = 0;      // of the quantizer; 0: one per core
  bool vision = false;  // a vision tower of one block, in both forms
};

// tokenizer.json of the made model: byte-level BPE whose merges are learned from a text of our own, V4.1's special
// tokens by content. The same for every seed.
std::string tokenizer_json();

// config.json of the native form, and what it parses to.
std::string config_json(const Options& options);
Result<model::Config> config(const Options& options);

// The release's layout: config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
// model.safetensors.index.json and six shards, the last two of which hold the six Engram tensors of one layer each.
Result<void> write_native(const std::filesystem::path& dir, const Options& options);

// Width of packed matrix P (a name of model::exl3_matrices): 2 to 8, mixed inside one layer and once inside one expert.
int packed_bits(std::string_view name);
// The EXL3 pack of the same weights (of their decoded native values), without Engram tables. Quantises: takes tens of
// core-seconds. The pack keeps gate.bias_vl, as packs for image input do.
Result<void> write_exl3(const std::filesystem::path& dir, const Options& options);

// A copy of pack `from` in which every packed matrix P stands as plain F32 P.weight [out, in] (wo_a in one piece): the
// weights a reader of the pack computes with, for comparing an engine with itself.
Result<void> write_dequantised(const std::filesystem::path& from, const std::filesystem::path& dir);

enum class Damage {
  kFlipBit,          // one bit of a tensor's data
  kScramble,         // a tensor's data replaced by other bytes of the same size
  kTruncate,         // the tensor's file ends inside its data
  kWrongShape,       // the header states another shape with as many elements (one dimension halved, one doubled)
  kWrongDtype,       // the header states another type of the same size
  kMissingTensor,    // gone from its shard and from the index
  kUnlistedTensor,   // gone from its shard, still in the index
  kDuplicateTensor,  // stands in a second shard, too
  kLostShard,        // the tensor's file is deleted, the index still names it
  kMissingShard,     // the index names a file that never was
  kLongHeader,       // the length field at the start of the tensor's file is far too large
  kBadHeader,        // the header is not JSON
  kWrongMarker,      // the codebook marker of a packed matrix has another value
  kDroppedMarker,    // the codebook marker of a packed matrix is gone
  kNotFinite,        // an infinity among the scales of a packed matrix, or a NaN among the block scales of a native one
  kDropBias,         // every ffn.gate.bias is gone
  kDropBiasVl,       // every ffn.gate.bias_vl is gone
};
struct Breakage {
  Damage damage{};
  std::string tensor;  // empty: one is chosen that the damage fits
};
// "flip-bit" or "flip-bit:layers.0.attn.wkv.weight". Errors: kUsage, with the list of kinds.
Result<Breakage> parse_breakage(std::string_view text);
std::vector<std::string_view> breakage_names();
// Damages a checkpoint folder in place. Returns one clause that says what was done to what.
// Errors: kMissing when the tensor, or a tensor that fits, is absent.
Result<std::string> damage(const std::filesystem::path& dir, const Breakage& breakage);

// SHA-256 over the names and contents of all files of a folder, hex.
Result<std::string> digest(const std::filesystem::path& dir);

}  // namespace dsf::made_checkpoint
