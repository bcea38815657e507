#pragma once
// Every tensor of a checkpoint, from the configuration alone: names, dtypes and shapes of the native release and of an EXL3 pack.
// Pure functions. Source: model.md section 2, exl3.md sections 2 and 6.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dsf/model/config.h"
#include "dsf/tensor/dtype.h"

namespace dsf::model {

enum class WeightKind {
  kPlain,      // stored as is (BF16 or F32): norms, hc_*, biases, embed, gate
  kLinearBf16, // a linear kept in BF16 in the release (compressor, indexer.wk, weights_proj, head)
  kLinearFp8,  // X.weight F8_E4M3 + X.scale F8_E8M0, 32x32 blocks
  kLinearFp4,  // X.weight I8 (two e2m1 per byte) + X.scale F8_E8M0, one per 32 inputs
  kTableFp8,   // Engram embedding rows: X.weight F8_E4M3 + X.scale F8_E8M0, one per row and 32 columns
};

// One logical matrix or vector. For linears `name` is the module ("layers.0.attn.wq_a"), for plain tensors the tensor itself.
struct Weight {
  std::string name;
  WeightKind kind{};
  tensor::Shape shape;      // logical [out, in] or vector shape
  tensor::DType dtype{};    // of plain tensors and BF16 linears
  bool packed_in_exl3 = false;  // becomes P.trellis/suh/svh/marker in an EXL3 pack (wo_a as wo_a.slice.{g})
};
std::vector<Weight> text_weights(const Config& config);    // backbone
std::vector<Weight> dspark_weights(const Config& config);  // mtp.*
std::vector<Weight> vision_weights(const Config& config);  // vision.*, aligner.*, image_*
std::vector<Weight> all_weights(const Config& config);     // the three, in this order

struct TensorSpec {
  std::string name;
  tensor::DType dtype{};
  tensor::Shape shape;
};
// The stored tensors of the native release: text, DSpark and vision (when the config has one).
std::vector<TensorSpec> native_tensors(const Config& config);

struct Totals {
  int64_t n_tensors = 0;
  std::map<tensor::DType, int64_t> bytes;  // per dtype
};
Totals totals(const std::vector<TensorSpec>& tensors);

// The matrices an EXL3 pack stores as trellises, with their packed names: wo_a appears as o_groups slices [o_lora_rank, group_in].
struct PackedSpec {
  std::string name;        // P of P.trellis
  int64_t out = 0, in = 0; // N and K of exl3.md
};
std::vector<PackedSpec> exl3_matrices(const Config& config);

}  // namespace dsf::model
