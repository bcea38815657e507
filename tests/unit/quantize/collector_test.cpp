// What the calibration sees: every packed matrix's own inputs, and the rule for experts with few tokens.
#include "tests/support/quantize/collector.h"

#include <doctest/doctest.h>

#include <numeric>
#include <set>

#include "dsf/model/weights.h"
#include "dsf/test/support.h"
#include "mini.h"
#include "tests/support/quantize/calibrate.h"

using namespace dsf;
using namespace dsf::quantize;

namespace {

std::unique_ptr<serve::CpuEngine> mini_engine(const std::filesystem::path& dir, int threads) {
  auto engine = serve::CpuEngine::open({.model_dir = dir, .max_sessions = 1, .threads = threads});
  REQUIRE_MESSAGE(engine, (engine ? std::string() : engine.error().line()));
  return std::move(*engine);
}

// Two conversations, the second longer than the model: 3 sessions of 20, 64 and 6 tokens.
std::vector<int32_t> text() {
  std::vector<int32_t> ids(90);
  std::iota(ids.begin(), ids.end(), 5);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 5 + static_cast<int32_t>(i * 37 % 120);
  ids[0] = ids[20] = 0;  // the BOS token
  return ids;
}

bool equal(const exl3::Hessian& a, const exl3::Hessian& b) {
  for (int64_t i = 0; i < a.in(); ++i)
    for (int64_t j = 0; j <= i; ++j)
      if (a.at(i, j) != b.at(i, j)) return false;
  return a.in() == b.in() && a.n_rows() == b.n_rows();
}

}  // namespace

TEST_CASE("every packed matrix sees its own inputs, experts only their tokens, for any number of threads") {
  const dsf::test::TempDir dir;
  quantize_test::write_mini(dir.path());
  const auto engine = mini_engine(dir.path(), 1), other = mini_engine(dir.path(), 3);
  Collector collector(engine->weights()), again(other->weights());
  engine->observe(&collector);
  other->observe(&again);
  REQUIRE(run_text(*engine, text()));
  REQUIRE(run_text(*other, text()));

  for (const model::PackedSpec& m : model::exl3_matrices(quantize_test::mini_config())) {
    CAPTURE(m.name);
    CHECK(collector.moments(m.name).in() == m.in);
    CHECK(equal(collector.moments(m.name), again.moments(m.name)));
    // The compressor sees one latent per two tokens; drafts run every few tokens, three rows each.
    const bool draft = m.name.starts_with("mtp.");
    const double seen = collector.n_rows(m.name);
    if (m.name == "mtp.0.main_proj")
      CHECK(seen == 90);
    else if (m.name == "layers.0.attn.indexer.wk")
      CHECK(seen == 45);
    else if (!draft && m.name != "head" && m.name.find(".experts.") == std::string::npos)
      CHECK(seen == 90);
  }
  const double drafts = collector.n_rows("mtp.0.attn.wq_a") / 3;
  CHECK(drafts == 2 + 7);  // after 8 and 16 of 20 tokens, after 8, 16, .. 56 of 64, none in 6
  CHECK(collector.n_rows("mtp.0.attn.wkv") == 90 + 3 * drafts);
  CHECK(collector.n_rows("head") == 90 + 3 * drafts);
  CHECK(collector.n_rows("layers.0.ffn.experts.0.w1") + collector.n_rows("layers.0.ffn.experts.1.w1") == 90);
  CHECK(collector.n_rows("layers.0.ffn.experts.0.w2") == collector.n_rows("layers.0.ffn.experts.0.w1"));
}

TEST_CASE("an observed product is that of the matrix: the first layer's experts read the shared expert's stream") {
  const dsf::test::TempDir dir;
  quantize_test::write_mini(dir.path());
  const auto engine = mini_engine(dir.path(), 1);
  Collector collector(engine->weights());
  engine->observe(&collector);
  REQUIRE(run_text(*engine, text()));
  // One expert a token: the experts' own sums add up to the shared expert's.
  exl3::Hessian sum(128);
  const std::string p = "layers.0.ffn.";
  const double a = collector.n_rows(p + "experts.0.w1"), b = collector.n_rows(p + "experts.1.w1");
  REQUIRE(a > 0);
  REQUIRE(b > 0);
  const exl3::Hessian layer = collector.moments(p + "shared_experts.w3");
  const exl3::Hessian first = collector.moments(p + "experts.0.w1"), second = collector.moments(p + "experts.1.w3");
  // moments() = (own sum + 128 rows of the layer's mean) / (n + 128)
  const auto own_sum = [&](const exl3::Hessian& h, double n) { return h.at(3, 9) * (n + 128) - layer.at(3, 9) * 128; };
  CHECK(own_sum(first, a) + own_sum(second, b) == doctest::Approx(layer.at(3, 9) * 90).epsilon(1e-9));
  CHECK(first.n_rows() == a + 128);
  CHECK(collector.moments(p + "experts.0.w2").n_rows() == a + 32);
}

TEST_CASE("an expert without tokens has the layer's moments for w1 and none for w2") {
  const dsf::test::TempDir dir;
  quantize_test::write_mini(dir.path());
  const auto engine = mini_engine(dir.path(), 1);
  Collector collector(engine->weights());
  const auto& moe = engine->weights().layers[0].ffn;
  const std::vector<float> x(128, 0.5f);
  collector.inputs(moe.shared.w1.w.data(), x.data(), 128, 1, 128);
  CHECK(collector.moments("layers.0.ffn.experts.1.w3").at(0, 1) == 0.25);
  CHECK(collector.moments("layers.0.ffn.experts.1.w2").mean_diagonal() == 0);
  CHECK(collector.n_rows("layers.0.ffn.experts.1.w1") == 0);
}
