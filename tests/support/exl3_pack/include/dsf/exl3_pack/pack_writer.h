#pragma once
// An EXL3 pack being written in the layout of the published ones: packed matrices (wo_a in slices), the small tensors
// beside them, config.json and quantization_config.json.
//
// Owns the folder being written; one thread (quantising starts its own). Nothing is written before finish(). The bytes
// are a function of what is added, in which order, and of the options. Source: exl3.md 2, 6; model.md 2.
#include <functional>
#include <span>
#include <string>

#include "dsf/exl3/quantize.h"
#include "dsf/exl3_pack/folder.h"
#include "dsf/json/json.h"
#include "dsf/model/weights.h"

namespace dsf::exl3_pack {

// Of the random signs: from the matrix's name, so that a change of one leaves the others alone.
uint64_t stream_seed(std::string_view name, uint64_t seed);

class PackWriter {
 public:
  // How packed matrix `name` is made. What the options borrow must live until the next call, or until add_linear()
  // returns.
  using Choose = std::function<exl3::QuantizeOptions(const std::string& name)>;
  // Told of every packed matrix; weight: [out, in], what it was made from. May be empty.
  using Report =
      std::function<void(const std::string& name, const exl3::PackedMatrix& m, std::span<const float> weight)>;
  PackWriter(FolderWriter folder, Choose choose, Report report = {})
      : folder_(std::move(folder)), choose_(std::move(choose)), report_(std::move(report)) {}

  static constexpr int kNextShard = 0;  // FolderWriter::append() instead of add()

  // w.packed_in_exl3; values: [out, in] of w.shape. Errors: those of quantize(), with the matrix's name.
  Result<void> add_linear(int shard, const model::Config& config, const model::Weight& w,
                          std::span<const float> values);
  // native: the stored tensor of the release; `module` is its key in tensor_storage. Router and indexer weights become
  // fp16, as the published packs have them. Errors: kContent for such a tensor that is no float.
  Result<void> add_plain(int shard, const std::string& module, safetensors::TensorData native);
  // native_config: config.json of the native form, whose quantization_config is kept inside the new one. Needs the
  // matrix "head". Errors: kLocal.
  Result<void> finish(json::Value native_config);

 private:
  Result<void> add_matrix(int shard, const std::string& name, std::span<const float> values, int64_t out, int64_t in);
  void place(int shard, std::vector<safetensors::TensorData> tensors);
  void remember(const std::string& module, const std::vector<safetensors::TensorData>& parts, int width);

  FolderWriter folder_;
  Choose choose_;
  Report report_;
  json::Object storage_;  // tensor_storage of quantization_config.json
  int64_t bits_ = 0, weights_ = 0;
  int head_bits_ = 0;
};

}  // namespace dsf::exl3_pack
