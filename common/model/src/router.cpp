#include "dsf/model/router.h"

#include <algorithm>
#include <cmath>

namespace dsf::model {
namespace {

using safetensors::Checkpoint;
using safetensors::TensorView;

Unexpected wrong(const std::string& tensor, std::string what, std::string fix, std::string cls) {
  return fail(Code::kContent, tensor, std::move(what), std::move(fix), std::move(cls));
}

Result<void> expect_shape(const std::string& name, const TensorView& view, const tensor::Shape& want) {
  if (view.shape() == want) return {};
  return wrong(name, "has shape " + tensor::shape_text(view.shape()) + ", the configuration needs " + tensor::shape_text(want), "use config.json and weights of one revision", "shape");
}

// A bias decides between experts whose scores lie close together: rounded to another type it is no longer the model's bias.
Result<std::vector<float>> read_bias(const std::string& name, const TensorView& view, int64_t n_experts) {
  DSF_OK(expect_shape(name, view, {n_experts}));
  if (view.dtype() != tensor::DType::kF32)
    return wrong(name, "is " + std::string(tensor::dtype_name(view.dtype())) + ", it was cast from F32", "take this tensor from the original release", "dtype");
  DSF_TRY(std::vector<float> values, safetensors::to_f32(view));
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); })) return wrong(name, "holds values that are not finite", "fetch it again", "not_finite");
  return values;
}

Result<TensorView> required(const Checkpoint& checkpoint, const std::string& name, const std::string& other_name) {
  if (checkpoint.contains(name)) return checkpoint.tensor(name);
  const bool renamed = !other_name.empty() && checkpoint.contains(other_name);
  return fail(Code::kMissing, name, renamed ? "is absent; the checkpoint calls it " + other_name : "is absent from the checkpoint",
              renamed ? "use a pack in the release's naming" : "use a pack that keeps it", "missing_tensor");
}

Result<std::optional<std::vector<float>>> find_bias_vl(const Checkpoint& checkpoint, const Checkpoint* sidecar, const RouterPlace& place) {
  const std::string name = place.gate + ".bias_vl";
  const bool inside = checkpoint.contains(name), beside = sidecar != nullptr && sidecar->contains(name);
  if (!inside && !beside) return std::optional<std::vector<float>>();
  DSF_TRY(const TensorView view, (inside ? checkpoint : *sidecar).tensor(name));
  if (inside && beside) {
    DSF_TRY(const TensorView other, sidecar->tensor(name));
    if (!std::equal(view.bytes.begin(), view.bytes.end(), other.bytes.begin(), other.bytes.end()))
      return wrong(name, "stands in the checkpoint and in the sidecar with different bytes", "remove the one that is not of this revision", "duplicate");
  }
  DSF_TRY(std::vector<float> values, read_bias(name, view, place.n_experts));
  return std::optional(std::move(values));
}

}  // namespace

std::vector<RouterPlace> router_places(const Config& c) {
  std::vector<RouterPlace> out;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) out.push_back({"layers." + std::to_string(i) + ".ffn.gate", c.n_routed_experts, false});
  for (int64_t k = 0; k < c.num_nextn_predict_layers; ++k) out.push_back({"mtp." + std::to_string(k) + ".ffn.gate", c.dspark_n_routed_experts, true});
  return out;
}

Result<Router> attach_router(const Checkpoint& checkpoint, const Checkpoint* sidecar, const RouterPlace& place, int64_t hidden_size) {
  Router out;
  const std::string weight_name = place.gate + ".weight", bias_name = place.gate + ".bias";
  DSF_TRY(const TensorView weight, required(checkpoint, weight_name, ""));
  DSF_OK(expect_shape(weight_name, weight, {place.n_experts, hidden_size}));
  const auto type = weight.dtype();
  if (type != tensor::DType::kBF16 && type != tensor::DType::kF16 && type != tensor::DType::kF32)
    return wrong(weight_name, "is " + std::string(tensor::dtype_name(type)) + ", BF16, F16 or F32 expected", "use a pack that keeps routers unquantised", "dtype");
  DSF_TRY(out.weight, safetensors::to_f32(weight));

  DSF_TRY(const TensorView bias, required(checkpoint, bias_name, place.gate + ".e_score_correction_bias"));
  DSF_TRY(out.bias, read_bias(bias_name, bias, place.n_experts));

  DSF_TRY(out.bias_vl, find_bias_vl(checkpoint, sidecar, place));
  if (out.bias_vl) {
    const bool zero = std::all_of(out.bias_vl->begin(), out.bias_vl->end(), [](float v) { return v == 0; });
    if (zero || *out.bias_vl == out.bias)
      return wrong(place.gate + ".bias_vl", zero ? "is all zero" : "is a copy of " + bias_name, "take it from the original release", "not_an_image_bias");
  }
  return out;
}

}  // namespace dsf::model
