#pragma once
// A checkpoint against the tensor table that its configuration gives: what dsf-preflight reports and what the engine
// refuses to load, decided once. Only headers, markers and block scales are read, never the weights.
//
// Pure functions over an open checkpoint; any thread. Source: model.md section 2, exl3.md section 2.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsf/model/config.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::model {

enum class Gravity { kNote, kWarning, kFail };

struct TableFinding {
  Gravity gravity = Gravity::kFail;
  std::string cls;     // "missing_tensor", "shape", "dtype", "codebook", "not_finite", "absent_group", ...
  std::string tensor;  // the tensor, matrix or folder that it is about
  std::string what, fix;
};

struct TableReport {
  std::vector<TableFinding> findings;
  int64_t n_native = 0, n_packed = 0;  // tensors and EXL3 matrices that are as the configuration needs them
};

// Every tensor that the engine loads: present, of its shape and of a type that keeps its meaning. Routers are left out:
// attach_router() judges them. tables_elsewhere: the Engram tables come from packed files and may be absent.
TableReport check_tensor_table(const Config& config, const safetensors::Checkpoint& checkpoint, bool tables_elsewhere);

struct ScaleReport {
  std::vector<TableFinding> findings;
  uint64_t n_tensors = 0, n_bytes = 0;
};
// Block scales (F8_E8M0) without NaN. Those of the Engram tables are left out.
ScaleReport check_block_scales(const safetensors::Checkpoint& checkpoint);

// The codebook of the matrices in a pack ("mul1", "mcg", "3inst"), from its tensors' names alone: one for all, and the
// one that quantization_config declares. A matrix that lost its marker is formally a valid 3INST matrix, and decodes to
// garbage. declared: may be empty. Empty without packed matrices. Errors: kContent, class "codebook".
Result<std::string> pack_codebook(std::span<const std::string> names, const std::string& declared);

// quantization_config.codebook of an EXL3 pack's config.json; empty when it declares none. Errors: kContent (no JSON).
Result<std::string> declared_codebook(std::string_view config_json, std::string_view subject);

// What an engine does before it loads: declared codebook, table, scales; the first thing that is wrong.
// Errors: kContent, kMissing (class "missing_tensor").
Result<void> require_loadable(const Config& config, const safetensors::Checkpoint& checkpoint);

}  // namespace dsf::model
