// The EXL3 pack of the made model against its native form.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/exl3/decode.h"
#include "dsf/exl3/quantize.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/made_checkpoint/folders.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "dsf/model/weights.h"
#include "dsf/test/support.h"

using namespace dsf;
using safetensors::Checkpoint;
using safetensors::TensorView;
using tensor::DType;

namespace {

model::Config made_config() { return made_checkpoint::config({}).value(); }

Checkpoint opened(const std::filesystem::path& dir) {
  auto c = Checkpoint::open(dir);
  REQUIRE_MESSAGE(c, c.error().line());
  return std::move(*c);
}

TensorView view(const Checkpoint& c, const std::string& name) {
  auto v = c.tensor(name);
  REQUIRE_MESSAGE(v, v.error().line());
  return *v;
}

// A native linear decoded by the rules of model.md 9, written here a second time.
std::vector<float> native_values(const Checkpoint& c, const model::Weight& w) {
  const TensorView weight = view(c, w.name + ".weight");
  const int64_t out = w.shape[0], in = w.shape[1];
  if (w.kind == model::WeightKind::kLinearBf16) return safetensors::to_f32(weight).value();
  const TensorView scale = view(c, w.name + ".scale");
  std::vector<float> values(static_cast<size_t>(out * in));
  for (int64_t n = 0; n < out; ++n) {
    for (int64_t k = 0; k < in; ++k) {
      const auto i = static_cast<size_t>(n * in + k);
      if (w.kind == model::WeightKind::kLinearFp8) {
        const auto s =
            static_cast<uint8_t>(scale.bytes[static_cast<size_t>(n / 32 * ceil_div<int64_t>(in, 32) + k / 32)]);
        values[i] = tensor::e4m3_to_f32(static_cast<uint8_t>(weight.bytes[i])) * std::ldexp(1.0f, s - 127);
      } else {
        const auto s = static_cast<uint8_t>(scale.bytes[static_cast<size_t>(n * in / 32 + k / 32)]);
        const auto pair = static_cast<uint8_t>(weight.bytes[i / 2]);
        values[i] = tensor::e2m1_to_f32(k % 2 == 0 ? pair & 15 : pair >> 4) * std::ldexp(1.0f, s - 127);
      }
    }
  }
  return values;
}

struct Seen {
  std::set<int> bits;
  double worst_ratio = 0;  // of the error to the expected one
};

void check_matrix(const Checkpoint& pack, const std::string& name, std::span<const float> native, int64_t out,
                  int64_t in, Seen& seen) {
  CAPTURE(name);
  const auto m = exl3::open(pack, name, out, in);
  REQUIRE_MESSAGE(m, m.error().line());
  CHECK(m->bits == made_checkpoint::packed_bits(name));
  const double expected = exl3::expected_error(exl3::Codebook::kMul1, m->bits);
  const double error = exl3::relative_error(*m, native);
  // Smaller matrices scatter, and from five bits on a single weight beyond the codebook shows (exl3.md 5.4).
  CHECK(error < expected * (m->bits <= 4 ? 1.08 : m->bits <= 6 ? 1.3 : 2.5));
  CHECK(error > expected * 0.92);
  seen.bits.insert(m->bits);
  seen.worst_ratio = std::max(seen.worst_ratio, error / expected);
}

std::vector<model::Weight> linears(const model::Config& c) {
  auto all = model::text_weights(c);
  for (auto&& w : model::dspark_weights(c)) all.push_back(w);
  std::erase_if(all, [](const model::Weight& w) { return !w.packed_in_exl3; });
  return all;
}

}  // namespace

TEST_CASE("every packed matrix of the made model errs as its width predicts") {
  const model::Config c = made_config();
  const Checkpoint native = opened(made_checkpoint::native_folder()), pack = opened(made_checkpoint::exl3_folder());
  Seen seen;
  size_t n = 0;
  for (const model::Weight& w : linears(c)) {
    const std::vector<float> values = native_values(native, w);
    const int64_t parts = w.name.ends_with(".attn.wo_a") ? c.o_groups : 1, out = w.shape[0] / parts, in = w.shape[1];
    for (int64_t g = 0; g < parts; ++g, ++n) {
      const std::string name = parts == 1 ? w.name : w.name + ".slice." + std::to_string(g);
      check_matrix(pack, name,
                   std::span(values).subspan(static_cast<size_t>(g * out * in), static_cast<size_t>(out * in)), out, in,
                   seen);
    }
  }
  CHECK(n == model::exl3_matrices(c).size());
  CHECK(seen.bits == std::set<int>{2, 3, 4, 5, 6, 7, 8});
  MESSAGE("largest error is " << seen.worst_ratio << " times the expected one, over " << n << " matrices");
}

TEST_CASE("the pack holds its matrices, the small native tensors and no Engram table") {
  const model::Config c = made_config();
  const Checkpoint pack = opened(made_checkpoint::exl3_folder());
  size_t expected = 4 * model::exl3_matrices(c).size();
  for (const model::TensorSpec& t : model::native_tensors(c)) {
    const bool packed =
        exl3::is_packed(pack, t.name.substr(0, t.name.rfind('.'))) || t.name.find(".wo_a.") != std::string::npos;
    if (packed || t.name.find("engram.embed") != std::string::npos) {
      CHECK(!pack.contains(t.name));
      continue;
    }
    ++expected;
    const bool f16 = t.name.ends_with("ffn.gate.weight") || t.name.ends_with("weights_proj.weight");
    CHECK(view(pack, t.name).dtype() == (f16 ? DType::kF16 : t.dtype));
    CHECK(view(pack, t.name).shape() == t.shape);
  }
  CHECK(pack.names().size() == expected);
}

TEST_CASE("the pack's configuration is the native one with its own quantization, and says so per tensor") {
  const auto config = model::load_config(made_checkpoint::exl3_folder() / "config.json");
  REQUIRE_MESSAGE(config, config.error().line());
  CHECK(config->hidden_size == made_config().hidden_size);
  const auto text = io::read_text(made_checkpoint::exl3_folder() / "quantization_config.json");
  const auto q = json::parse(text.value(), "quantization_config.json");
  REQUIRE(q.has_value());
  CHECK(q->find("quant_method")->as_string() == "exl3");
  const json::Value* head = q->find("tensor_storage")->find("head");
  REQUIRE(head != nullptr);
  CHECK(head->find("bits_per_weight")->to_i64() == 6);
  CHECK(head->find("mul1_multiplier")->to_i64() == 2212286765);
}

TEST_CASE("the dequantised copy holds what the pack's matrices decode to") {
  const Checkpoint pack = opened(made_checkpoint::exl3_folder()), plain = opened(made_checkpoint::dequantised_folder());
  const auto m = exl3::open(pack, "layers.3.attn.wo_a.slice.1");
  REQUIRE(m.has_value());
  std::vector<float> part(static_cast<size_t>(m->out * m->in));
  exl3::dequantise(*m, part);
  const auto whole = safetensors::to_f32(view(plain, "layers.3.attn.wo_a.weight")).value();
  REQUIRE(whole.size() == 2 * part.size());
  CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(part.size())));
  CHECK(view(plain, "head.weight").dtype() == DType::kF32);
  CHECK(!plain.contains("head.trellis"));
  CHECK(plain.contains("layers.0.ffn.gate.bias_vl"));
}
