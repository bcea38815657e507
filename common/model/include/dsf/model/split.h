#pragma once
// Tensor parallel as data: which part of every tensor a rank holds, for any number of ranks that the shapes allow.
//
//   output groups with their query heads   wq_b, wo_a, attn_sink (outputs), wo_b (inputs)
//   expert width, in blocks                w1, w3 (outputs), w2 (inputs) of routed and shared experts
//   vocabulary, in blocks                  head (outputs)
//   Engram hash heads                      packed row files (engram::Layout::rank_rows cuts the tables alike)
//   everything else                        whole on every rank; vision on rank 0 alone
//
// The embedding stays whole: cutting it would save 0.6 GiB a rank of the release and cost one more reduction a step.
// Shares differ by one group or block at most, the first ranks have the larger ones; a rank may have an empty share of
// a part that is too small for all ranks: it adds nothing to that sum. Blocks are 128 wide (EXL3 cannot be cut finer);
// in other checkpoints 64 or 32 when the part has too few blocks of 128. Pure functions; any thread.
// Source: model.md 10, exl3.md 7.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/model/config.h"
#include "dsf/tensor/dtype.h"

namespace dsf::model {

struct Range {  // [begin, end)
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct RankShare {
  Range groups;   // of o_groups
  Range heads;    // of num_attention_heads: those of its groups
  Range expert;   // of moe_intermediate_size
  Range shared;   // of n_shared_experts * moe_intermediate_size
  Range vocab;    // of vocab_size: rows of the head
  Range columns;  // of engram_columns(); empty without Engram layers
  bool operator==(const RankShare&) const = default;
};

enum class StoredForm { kNative, kExl3 };

class Split {
 public:
  // Errors: kUsage when world is no number of ranks (class "world"), or leaves a rank without output group and expert
  // width, or without hash heads; kContent when a part of an EXL3 checkpoint does not consist of whole 128-blocks.
  static Result<Split> create(const Config& config, int world, StoredForm form);
  // One rank that holds everything.
  static Split whole(const Config& config);

  int world() const { return static_cast<int>(shares_.size()); }
  StoredForm form() const { return form_; }
  const RankShare& share(int rank) const { return shares_[static_cast<size_t>(rank)]; }
  const std::vector<RankShare>& shares() const { return shares_; }
  // The plan as lines of text, the same on every machine, and the SHA-256 (hex) of it and the configuration: ranks with
  // different digests must not run together.
  std::string text() const;
  std::string digest(const Config& config) const;

 private:
  Split(StoredForm form, std::vector<RankShare> shares) : form_(form), shares_(std::move(shares)) {}
  StoredForm form_;
  std::vector<RankShare> shares_;
};

// The part of one stored tensor: a range of one axis, in stored elements of that axis.
struct TensorCut {
  int axis = -1;  // -1: whole
  Range range;
};
// tensor: a stored name ("layers.3.attn.wq_b.scale", "layers.3.attn.wo_a.slice.2.trellis", "head.svh"); shape: as
// stored. A slice of wo_a of another rank has an empty range of axis 0. Tables of Engram are not cut here. Errors:
// kContent, naming the tensor, when the cut would fall inside a stored block.
Result<TensorCut> cut_of(const Split& split, const Config& config, std::string_view tensor, const tensor::Shape& shape,
                         int rank);

}  // namespace dsf::model
