#include "dsf/model/router.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::model;
using tensor::DType;

namespace {
constexpr int64_t kExperts = 3, kHidden = 2;
const RouterPlace kPlace{"layers.0.ffn.gate", kExperts, false};

std::vector<std::byte> floats(std::vector<float> v) {
  std::vector<std::byte> out(v.size() * 4);
  std::memcpy(out.data(), v.data(), out.size());
  return out;
}
using Tensors = std::map<std::string, safetensors::TensorData>;
Tensors good() {
  const auto t = [](const char* name, DType type, tensor::Shape shape, std::vector<std::byte> bytes) { return safetensors::TensorData{std::string("layers.0.ffn.gate.") + name, type, std::move(shape), std::move(bytes)}; };
  Tensors out;
  out["weight"] = t("weight", DType::kBF16, {3, 2}, std::vector<std::byte>(12, std::byte{0x3f}));
  out["bias"] = t("bias", DType::kF32, {3}, floats({1, 2, 3}));
  out["bias_vl"] = t("bias_vl", DType::kF32, {3}, floats({4, 5, 6}));
  return out;
}
safetensors::Checkpoint written(const test::TempDir& dir, const Tensors& tensors) {
  std::vector<safetensors::TensorData> list;
  for (const auto& [key, t] : tensors) list.push_back(t);
  REQUIRE(safetensors::write_file(dir / "a.safetensors", list));
  auto c = safetensors::Checkpoint::open(dir.path());
  REQUIRE(c);
  return std::move(*c);
}
Result<Router> attach(const std::function<void(Tensors&)>& change) {
  test::TempDir dir;
  Tensors tensors = good();
  change(tensors);
  const auto checkpoint = written(dir, tensors);
  return attach_router(checkpoint, nullptr, kPlace, kHidden);
}
void refused(const std::function<void(Tensors&)>& change, Code code, const std::string& cls) {
  const auto r = attach(change);
  REQUIRE(!r);
  INFO(r.error().line());
  CHECK(r.error().code == code);
  CHECK(r.error().cls == cls);
  CHECK(r.error().subject.starts_with("layers.0.ffn.gate."));
  CHECK(!r.error().fix.empty());
}
}  // namespace

TEST_CASE("a complete router attaches with all three parts") {
  const auto r = attach([](Tensors&) {});
  REQUIRE(r);
  CHECK(r->weight.size() == 6);
  CHECK(r->bias == std::vector<float>{1, 2, 3});
  REQUIRE(r->bias_vl);
  CHECK(*r->bias_vl == std::vector<float>{4, 5, 6});
}

TEST_CASE("a dropped image bias attaches as absent, a dropped text bias is refused") {
  const auto r = attach([](Tensors& t) { t.erase("bias_vl"); });
  REQUIRE(r);
  CHECK(!r->bias_vl);
  refused([](Tensors& t) { t.erase("bias"); }, Code::kMissing, "missing_tensor");
  refused([](Tensors& t) { t.erase("weight"); }, Code::kMissing, "missing_tensor");
  const auto renamed = attach([](Tensors& t) {
    t["bias"].name = "layers.0.ffn.gate.e_score_correction_bias";
  });
  CHECK(renamed.error().what.find("e_score_correction_bias") != std::string::npos);
}

TEST_CASE("cast, misshaped, not finite, copied or zero biases are refused with their class") {
  refused([](Tensors& t) { t["bias"] = {"layers.0.ffn.gate.bias", DType::kBF16, {3}, std::vector<std::byte>(6)}; }, Code::kContent, "dtype");
  refused([](Tensors& t) { t["bias_vl"] = {"layers.0.ffn.gate.bias_vl", DType::kF16, {3}, std::vector<std::byte>(6)}; }, Code::kContent, "dtype");
  refused([](Tensors& t) { t["bias_vl"] = {"layers.0.ffn.gate.bias_vl", DType::kF32, {2}, floats({4, 5})}; }, Code::kContent, "shape");
  refused([](Tensors& t) { t["weight"].shape = {2, 3}; }, Code::kContent, "shape");
  refused([](Tensors& t) { t["bias"].bytes = floats({1, NAN, 3}); }, Code::kContent, "not_finite");
  refused([](Tensors& t) { t["bias_vl"].bytes = floats({1, INFINITY, 3}); }, Code::kContent, "not_finite");
  refused([](Tensors& t) { t["bias_vl"].bytes = t["bias"].bytes; }, Code::kContent, "not_an_image_bias");
  refused([](Tensors& t) { t["bias_vl"].bytes = floats({0, 0, 0}); }, Code::kContent, "not_an_image_bias");
}

TEST_CASE("a sidecar fills in, agrees, or is refused") {
  test::TempDir dir, side, other;
  Tensors without = good(), only, wrong;
  only["bias_vl"] = without["bias_vl"];
  wrong["bias_vl"] = {"layers.0.ffn.gate.bias_vl", DType::kF32, {3}, floats({7, 8, 9})};
  const auto whole = written(dir, without);
  const auto sidecar = written(side, only), foreign = written(other, wrong);
  CHECK(attach_router(whole, &sidecar, kPlace, kHidden));
  CHECK(attach_router(whole, &foreign, kPlace, kHidden).error().cls == "duplicate");
  test::TempDir bare;
  without.erase("bias_vl");
  const auto dropped = written(bare, without);
  const auto r = attach_router(dropped, &foreign, kPlace, kHidden);
  REQUIRE(r);
  CHECK(*r->bias_vl == std::vector<float>{7, 8, 9});
}

TEST_CASE("the release has 40 backbone routers of 384 experts and 3 drafting ones of 128") {
  const auto c = load_config(test::golden() / "config" / "release.json");
  REQUIRE(c);
  const auto places = router_places(*c);
  REQUIRE(places.size() == 43);
  CHECK(places[39].gate == "layers.39.ffn.gate");
  CHECK(places[39].n_experts == 384);
  CHECK(places[42].gate == "mtp.2.ffn.gate");
  CHECK(places[42].n_experts == 128);
  CHECK(places[42].draft);
}
