#include "dsf/model/tensor_table.h"

#include <algorithm>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/exl3/matrix.h"
#include "dsf/io/file.h"
#include "dsf/model/weights.h"

namespace dsf::model {
namespace {

using safetensors::Checkpoint;
using safetensors::TensorView;
using tensor::DType;

constexpr const char* kFetchAgain = "fetch the checkpoint again, or use the config.json that belongs to it";

bool plain_float(DType t) { return t == DType::kBF16 || t == DType::kF16 || t == DType::kF32; }

// EXL3 packs store these in fp16. Everywhere else F16 in place of BF16 is a wrong label on right bytes: a tensor of
// garbage that loads.
bool may_be_f16(const std::string& name) {
  return name.ends_with(".indexer.weights_proj.weight") || name.ends_with("_head.head.weight") ||
         name.ends_with("confidence_head.proj.weight");
}

class Table {
 public:
  Table(const Config& config, const Checkpoint& checkpoint, bool tables_elsewhere)
      : config_(config), checkpoint_(checkpoint), tables_elsewhere_(tables_elsewhere) {}

  TableReport run() {
    for (const Weight& w : text_weights(config_)) check(w);
    group(dspark_weights(config_), "mtp.", "no DSpark blocks: drafting is not available", Gravity::kNote);
    group(vision_weights(config_), "vision.", "no vision tower: images cannot be served", Gravity::kNote);
    const std::vector<std::string> names = checkpoint_.names();
    if (const auto codebook = pack_codebook(names, ""); !codebook) add(codebook.error());
    report_unexpected(names);
    return std::move(out_);
  }

 private:
  void fail(const char* cls, const std::string& tensor, const std::string& what, const char* fix = kFetchAgain) {
    out_.findings.push_back({Gravity::kFail, cls, tensor, what, fix});
  }

  void add(const Error& e) {
    out_.findings.push_back({Gravity::kFail, e.cls, e.subject, e.what, e.fix.empty() ? kFetchAgain : e.fix});
  }

  // Parts of the model that a checkpoint may leave out as a whole, but not in part.
  void group(const std::vector<Weight>& weights, const std::string& prefix, const char* absent, Gravity gravity) {
    if (weights.empty()) return;
    const auto names = checkpoint_.names();
    const bool any =
        std::any_of(names.begin(), names.end(), [&](const std::string& n) { return n.starts_with(prefix); });
    if (!any)
      return out_.findings.push_back({gravity, "absent_group", checkpoint_.dir().string(), absent,
                                      "use a checkpoint that keeps " + prefix + "* if it is wanted"});
    for (const Weight& w : weights) check(w);
  }

  void check(const Weight& w) {
    // Routers have checks of their own, through the function that the engine calls.
    if (w.name.ends_with(".ffn.gate.weight") || w.name.ends_with(".ffn.gate.bias") ||
        w.name.ends_with(".ffn.gate.bias_vl"))
      return seen(w.name);
    switch (w.kind) {
      case WeightKind::kPlain:
        return plain(w);
      case WeightKind::kTableFp8:
        return table(w);
      case WeightKind::kLinearBf16:
      case WeightKind::kLinearFp8:
      case WeightKind::kLinearFp4:
        return linear(w);
    }
  }

  std::optional<TensorView> shaped(const std::string& name, const tensor::Shape& shape) {
    const auto view = checkpoint_.tensor(name);
    seen(name);
    if (!view) return fail("missing_tensor", name, "is absent from the checkpoint"), std::nullopt;
    if (view->shape() != shape)
      return fail("shape", name,
                  "has shape " + tensor::shape_text(view->shape()) + ", the configuration needs " +
                      tensor::shape_text(shape)),
             std::nullopt;
    ++out_.n_native;
    return *view;
  }

  void typed(const std::string& name, const TensorView& view, DType want) {
    if (view.dtype() != want)
      fail("dtype", name,
           "is " + std::string(tensor::dtype_name(view.dtype())) + ", " + std::string(tensor::dtype_name(want)) +
               " expected");
  }

  void plain(const Weight& w) {
    const auto view = shaped(w.name, w.shape);
    if (!view) return;
    if (!plain_float(view->dtype()) || view->dtype() == DType::kF16)
      fail("dtype", w.name,
           "is " + std::string(tensor::dtype_name(view->dtype())) + ", " + std::string(tensor::dtype_name(w.dtype)) +
               " expected");
    else if (w.dtype == DType::kF32 && view->dtype() != DType::kF32)
      fail("dtype", w.name, "is " + std::string(tensor::dtype_name(view->dtype())) + ", it was cast from F32",
           "take this tensor from the original release");
  }

  void table(const Weight& w) {
    // With packed files the tables may be absent, as they are from every EXL3 pack.
    if (!checkpoint_.contains(w.name + ".weight") && tables_elsewhere_) return;
    if (const auto view = shaped(w.name + ".weight", w.shape)) typed(w.name + ".weight", *view, DType::kF8E4M3);
    if (const auto view = shaped(w.name + ".scale", {w.shape[0], w.shape[1] / 32}))
      typed(w.name + ".scale", *view, DType::kF8E8M0);
  }

  void linear(const Weight& w) {
    if (exl3::is_packed(checkpoint_, w.name)) return packed(w.name, w.shape[0], w.shape[1]);
    if (exl3::is_packed(checkpoint_, w.name + ".slice.0")) {
      for (int64_t g = 0; g < config_.o_groups; ++g)
        packed(w.name + ".slice." + std::to_string(g), w.shape[0] / config_.o_groups, w.shape[1]);
      return;
    }
    const std::string weight = w.name + ".weight", scale = w.name + ".scale";
    if (checkpoint_.contains(w.name + ".suh") || checkpoint_.contains(w.name + ".svh"))
      return fail("missing_tensor", w.name + ".trellis", "is absent, the matrix's scales are there");
    const auto view = checkpoint_.tensor(weight);
    if (!view) {
      seen(weight);
      return fail("missing_tensor", weight, "is absent from the checkpoint, and there is no " + w.name + ".trellis");
    }
    if (view->dtype() == DType::kI8) {
      shaped(weight, {w.shape[0], w.shape[1] / 2});
      if (const auto s = shaped(scale, {w.shape[0], w.shape[1] / 32})) typed(scale, *s, DType::kF8E8M0);
    } else if (view->dtype() == DType::kF8E4M3) {
      shaped(weight, w.shape);
      if (const auto s = shaped(scale, {ceil_div<int64_t>(w.shape[0], 32), ceil_div<int64_t>(w.shape[1], 32)}))
        typed(scale, *s, DType::kF8E8M0);
    } else if (plain_float(view->dtype()) && (view->dtype() != DType::kF16 || may_be_f16(weight))) {
      shaped(weight, w.shape);
      if (checkpoint_.contains(scale)) fail("dtype", weight, "has a scale but is neither F8_E4M3 nor I8");
    } else {
      fail("dtype", weight, "is " + std::string(tensor::dtype_name(view->dtype())) + ", which is no form of a linear");
    }
    seen(weight);
    seen(scale);
  }

  void packed(const std::string& name, int64_t n_out, int64_t n_in) {
    for (const char* part : {".trellis", ".suh", ".svh", ".mul1", ".mcg"}) seen(name + part);
    const auto matrix = exl3::open(checkpoint_, name, n_out, n_in);
    if (!matrix) return add(matrix.error());
    ++out_.n_packed;
  }

  void seen(const std::string& name) { seen_.insert(name); }

  void report_unexpected(const std::vector<std::string>& names) {
    std::vector<std::string> extra;
    for (const std::string& name : names)
      if (!seen_.contains(name)) extra.push_back(name);
    if (extra.empty()) return;
    const std::string more = extra.size() > 1 ? " and " + std::to_string(extra.size() - 1) + " more tensors" : "";
    out_.findings.push_back({Gravity::kWarning, "unexpected_tensor", extra.front() + more,
                             "not in the configuration's table, nothing reads them",
                             "use the config.json that belongs to this checkpoint"});
  }

  const Config& config_;
  const Checkpoint& checkpoint_;
  const bool tables_elsewhere_;
  TableReport out_;
  std::set<std::string> seen_;
};

}  // namespace

TableReport check_tensor_table(const Config& config, const Checkpoint& checkpoint, bool tables_elsewhere) {
  return Table(config, checkpoint, tables_elsewhere).run();
}

ScaleReport check_block_scales(const Checkpoint& checkpoint) {
  ScaleReport out;
  for (const safetensors::File& file : checkpoint.files())
    for (const safetensors::TensorInfo& t : file.header().tensors) {
      // The tables' scales are as large as a shard; the packed rows and their digests have checks of their own.
      if (t.dtype != DType::kF8E8M0 || t.name.find(".engram.embed.") != std::string::npos) continue;
      const auto view = file.tensor(t.name);
      if (!view) continue;
      ++out.n_tensors;
      out.n_bytes += view->bytes.size();
      const auto bad = std::find(view->bytes.begin(), view->bytes.end(), std::byte{0xff});
      if (bad == view->bytes.end()) continue;
      const std::string what = "scale " + std::to_string(bad - view->bytes.begin()) + " is NaN";
      out.findings.push_back({Gravity::kFail, "not_finite", t.name, what, "fetch the checkpoint again"});
    }
  return out;
}

Result<void> require_loadable(const Config& config, const Checkpoint& checkpoint) {
  const auto config_json = checkpoint.dir() / "config.json";
  std::error_code ec;
  if (std::filesystem::exists(config_json, ec)) {
    DSF_TRY(const std::string text, io::read_text(config_json, 16 << 20));
    DSF_TRY(const std::string declared, declared_codebook(text, config_json.string()));
    DSF_OK(pack_codebook(checkpoint.names(), declared));
  }
  const auto refuse = [](const std::vector<TableFinding>& findings) -> Result<void> {
    for (const TableFinding& f : findings) {
      if (f.gravity != Gravity::kFail) continue;
      return fail(f.cls == "missing_tensor" ? Code::kMissing : Code::kContent, f.tensor, f.what, f.fix, f.cls);
    }
    return {};
  };
  // Whether the tables are needed in this folder is for whoever opens the rows to say.
  DSF_OK(refuse(check_tensor_table(config, checkpoint, true).findings));
  return refuse(check_block_scales(checkpoint).findings);
}

}  // namespace dsf::model
