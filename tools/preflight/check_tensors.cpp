// tensors.table and tensors.scales: the checkpoint against the tensor table that the configuration gives. Source: model.md 2, exl3.md 2.
#include <algorithm>
#include <array>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/exl3/matrix.h"
#include "dsf/model/weights.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

using model::Weight;
using model::WeightKind;
using safetensors::TensorView;
using tensor::DType;

constexpr const char* kFetchAgain = "fetch the checkpoint again, or use the config.json that belongs to it";

bool plain_float(DType t) { return t == DType::kBF16 || t == DType::kF16 || t == DType::kF32; }

// EXL3 packs store these in fp16. Everywhere else F16 in place of BF16 is a wrong label on right bytes: a tensor of garbage that loads.
bool may_be_f16(const std::string& name) { return name.ends_with(".indexer.weights_proj.weight") || name.ends_with("_head.head.weight") || name.ends_with("confidence_head.proj.weight"); }

class Table {
 public:
  Table(Context& c, Outcome& out) : c_(c), config_(*c.config), out_(out) {}

  void run() {
    for (const Weight& w : model::text_weights(config_)) check(w);
    group(model::dspark_weights(config_), "mtp.", "no DSpark blocks: drafting is not available", Status::kNote);
    group(model::vision_weights(config_), "vision.", "no vision tower: images cannot be served", Status::kNote);
    report_unexpected();
    out_.summary = std::to_string(n_native_) + " tensors and " + std::to_string(n_packed_) + " packed matrices as the configuration needs them";
    c_.facts["packed_matrices"] = std::to_string(n_packed_);
  }

 private:
  void fail(const char* cls, const std::string& tensor, const std::string& what, const char* fix = kFetchAgain) { out_.add({Status::kFail, cls, tensor + ": " + what, fix}); }

  // Parts of the model that a checkpoint may leave out as a whole, but not in part.
  void group(const std::vector<Weight>& weights, const std::string& prefix, const char* absent, Status status) {
    if (weights.empty()) return;
    const auto names = c_.checkpoint->names();
    const bool any = std::any_of(names.begin(), names.end(), [&](const std::string& n) { return n.starts_with(prefix); });
    if (!any) return out_.add({status, "absent_group", c_.plan.model.string() + ": " + absent, "use a checkpoint that keeps " + prefix + "* if it is wanted"});
    for (const Weight& w : weights) check(w);
  }

  void check(const Weight& w) {
    // Routers have checks of their own, through the function that the engine calls.
    if (w.name.ends_with(".ffn.gate.weight") || w.name.ends_with(".ffn.gate.bias") || w.name.ends_with(".ffn.gate.bias_vl")) return seen(w.name);
    switch (w.kind) {
      case WeightKind::kPlain: return plain(w);
      case WeightKind::kTableFp8: return table(w);
      case WeightKind::kLinearBf16:
      case WeightKind::kLinearFp8:
      case WeightKind::kLinearFp4: return linear(w);
    }
  }

  std::optional<TensorView> shaped(const std::string& name, const tensor::Shape& shape) {
    const auto view = c_.checkpoint->tensor(name);
    seen(name);
    if (!view) return fail("missing_tensor", name, "is absent from the checkpoint"), std::nullopt;
    if (view->shape() != shape)
      return fail("shape", name, "has shape " + tensor::shape_text(view->shape()) + ", the configuration needs " + tensor::shape_text(shape)), std::nullopt;
    ++n_native_;
    return *view;
  }

  void typed(const std::string& name, const TensorView& view, DType want) {
    if (view.dtype() != want) fail("dtype", name, "is " + std::string(tensor::dtype_name(view.dtype())) + ", " + std::string(tensor::dtype_name(want)) + " expected");
  }

  void plain(const Weight& w) {
    const auto view = shaped(w.name, w.shape);
    if (!view) return;
    if (!plain_float(view->dtype()) || view->dtype() == DType::kF16) fail("dtype", w.name, "is " + std::string(tensor::dtype_name(view->dtype())) + ", " + std::string(tensor::dtype_name(w.dtype)) + " expected");
    else if (w.dtype == DType::kF32 && view->dtype() != DType::kF32)
      fail("dtype", w.name, "is " + std::string(tensor::dtype_name(view->dtype())) + ", it was cast from F32", "take this tensor from the original release");
  }

  void table(const Weight& w) {
    // With packed files the tables may be absent, as they are from every EXL3 pack.
    if (!c_.checkpoint->contains(w.name + ".weight") && !c_.plan.engram.empty()) return;
    if (const auto view = shaped(w.name + ".weight", w.shape)) typed(w.name + ".weight", *view, DType::kF8E4M3);
    if (const auto view = shaped(w.name + ".scale", {w.shape[0], w.shape[1] / 32})) typed(w.name + ".scale", *view, DType::kF8E8M0);
  }

  void linear(const Weight& w) {
    if (exl3::is_packed(*c_.checkpoint, w.name)) return packed(w.name, w.shape[0], w.shape[1]);
    if (exl3::is_packed(*c_.checkpoint, w.name + ".slice.0")) {
      for (int64_t g = 0; g < config_.o_groups; ++g) packed(w.name + ".slice." + std::to_string(g), w.shape[0] / config_.o_groups, w.shape[1]);
      return;
    }
    const std::string weight = w.name + ".weight", scale = w.name + ".scale";
    if (c_.checkpoint->contains(w.name + ".suh") || c_.checkpoint->contains(w.name + ".svh")) return fail("missing_tensor", w.name + ".trellis", "is absent, the matrix's scales are there");
    const auto view = c_.checkpoint->tensor(weight);
    if (!view) {
      seen(weight);
      return fail("missing_tensor", weight, "is absent from the checkpoint, and there is no " + w.name + ".trellis");
    }
    if (view->dtype() == DType::kI8) {
      shaped(weight, {w.shape[0], w.shape[1] / 2});
      if (const auto s = shaped(scale, {w.shape[0], w.shape[1] / 32})) typed(scale, *s, DType::kF8E8M0);
    } else if (view->dtype() == DType::kF8E4M3) {
      shaped(weight, w.shape);
      if (const auto s = shaped(scale, {ceil_div<int64_t>(w.shape[0], 32), ceil_div<int64_t>(w.shape[1], 32)})) typed(scale, *s, DType::kF8E8M0);
    } else if (plain_float(view->dtype()) && (view->dtype() != DType::kF16 || may_be_f16(weight))) {
      shaped(weight, w.shape);
      if (c_.checkpoint->contains(scale)) fail("dtype", weight, "has a scale but is neither F8_E4M3 nor I8");
    } else {
      fail("dtype", weight, "is " + std::string(tensor::dtype_name(view->dtype())) + ", which is no form of a linear");
    }
    seen(weight);
    seen(scale);
  }

  void packed(const std::string& name, int64_t n_out, int64_t n_in) {
    for (const char* part : {".trellis", ".suh", ".svh", ".mul1", ".mcg"}) seen(name + part);
    const auto matrix = exl3::open(*c_.checkpoint, name, n_out, n_in);
    if (!matrix) {
      Finding f = finding_of(matrix.error());
      if (matrix.error().fix.empty()) f.fix = kFetchAgain;
      return out_.add(std::move(f));
    }
    // The published pack marks every matrix; one without its marker would be decoded with another codebook, without any error.
    if (matrix->codebook == exl3::Codebook::k3Inst) unmarked_.push_back(name);
    else ++n_marked_;
    ++n_packed_;
  }

  void seen(const std::string& name) { seen_.insert(name); }

  void report_unexpected() {
    if (!unmarked_.empty() && n_marked_ > 0)
      for (const std::string& name : unmarked_) fail("marker", name, "has no codebook marker, other matrices of this pack have one");
    std::vector<std::string> extra;
    for (const std::string& name : c_.checkpoint->names())
      if (!seen_.contains(name)) extra.push_back(name);
    if (extra.empty()) return;
    out_.add({Status::kWarning, "unexpected_tensor", extra.front() + (extra.size() > 1 ? " and " + std::to_string(extra.size() - 1) + " more tensors" : "") + ": not in the configuration's table, nothing reads them",
              "use the config.json that belongs to this checkpoint"});
  }

  Context& c_;
  const model::Config& config_;
  Outcome& out_;
  std::set<std::string> seen_;
  std::vector<std::string> unmarked_;
  size_t n_native_ = 0, n_packed_ = 0, n_marked_ = 0;
};

}  // namespace

void check_tensor_table(Context& c, Outcome& out) {
  if (!c.config || !c.checkpoint) return Context::skip(out, "needs config.valid and shards.open");
  Table(c, out).run();
}

void check_scales(Context& c, Outcome& out) {
  if (!c.checkpoint) return Context::skip(out, "needs shards.open");
  uint64_t n = 0, bytes = 0;
  for (const safetensors::File& file : c.checkpoint->files())
    for (const safetensors::TensorInfo& t : file.header().tensors) {
      // The tables' scales are files of their own size; engram.content and dsf-verify look at them.
      if (t.dtype != DType::kF8E8M0 || t.name.find(".engram.embed.") != std::string::npos) continue;
      const auto view = file.tensor(t.name);
      if (!view) continue;
      ++n;
      bytes += view->bytes.size();
      const auto bad = std::find(view->bytes.begin(), view->bytes.end(), std::byte{0xff});
      if (bad != view->bytes.end())
        out.add({Status::kFail, "not_finite", t.name + ": scale " + std::to_string(bad - view->bytes.begin()) + " is NaN", "fetch the checkpoint again"});
    }
  out.summary = n == 0 ? "no block scales in this checkpoint" : std::to_string(n) + " tensors, " + format_bytes(bytes);
}

}  // namespace dsf::preflight
