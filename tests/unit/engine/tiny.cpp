#include "tiny.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "dsf/test/support.h"

namespace dsf::serve::test {

std::optional<Tiny> Tiny::open(const char* test) {
  const std::filesystem::path data = dsf::test::shared_data();
  if (data.empty()) {
    dsf::test::skip(test, "shared data not present");
    return std::nullopt;
  }
  Tiny t;
  t.dir_ = data / "tiny_v41";
  auto file = safetensors::File::open(t.dir_ / "golden.safetensors");
  REQUIRE(file.has_value());
  t.golden_ = std::make_unique<safetensors::File>(std::move(*file));
  return t;
}

Floats Tiny::floats(const std::string& name) const {
  const auto view = golden_->tensor(name);
  REQUIRE_MESSAGE(view.has_value(), name);
  auto values = safetensors::to_f32(*view);
  REQUIRE(values.has_value());
  return std::move(*values);
}

Ids Tiny::ids(const std::string& name) const {
  const auto view = golden_->tensor(name);
  REQUIRE_MESSAGE(view.has_value(), name);
  const auto values = safetensors::to_i64(*view);
  REQUIRE(values.has_value());
  return Ids(values->begin(), values->end());
}

Ids Tiny::fed(int prompt) const {
  const std::string p = "prompt" + std::to_string(prompt);
  Ids all = ids(p + ".input_ids");
  const Ids more = ids(p + ".cont_ids");
  all.insert(all.end(), more.begin(), more.end() - 1);
  return all;
}

std::unique_ptr<CpuEngine> Tiny::engine(bool fake_quant, CpuEngineOptions options) const {
  options.model_dir = dir_;
  options.fake_quant = fake_quant;
  if (options.threads == 0) options.threads = 2;
  auto engine = CpuEngine::open(std::move(options));
  REQUIRE_MESSAGE(engine.has_value(), (engine ? std::string() : engine.error().line()));
  return std::move(*engine);
}

SessionId open_session(CpuEngine& engine) {
  const auto session = engine.open();
  REQUIRE(session.has_value());
  return *session;
}

Floats feed(CpuEngine& engine, SessionId session, std::span<const int32_t> tokens) {
  const StepItem item{.session = session, .tokens = tokens, .want_all_logits = true};
  const auto out = engine.step({&item, 1});
  REQUIRE_MESSAGE(out.has_value(), (out ? std::string() : out.error().line()));
  REQUIRE(out->n_rows == std::ssize(tokens));
  return Floats(out->logits.begin(), out->logits.end());
}

Floats feed_chunks(CpuEngine& engine, SessionId session, std::span<const int32_t> tokens, int64_t chunk) {
  Floats all;
  for (size_t at = 0; at < tokens.size(); at += static_cast<size_t>(chunk)) {
    const Floats part =
        feed(engine, session, tokens.subspan(at, std::min(static_cast<size_t>(chunk), tokens.size() - at)));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

float max_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    if (!(d <= worst)) worst = std::isnan(d) ? std::numeric_limits<float>::infinity() : d;
  }
  return worst;
}

Ids argmax_rows(std::span<const float> logits, int64_t width) {
  Ids best;
  for (auto row = logits.begin(); row != logits.end(); row += width)
    best.push_back(static_cast<int32_t>(std::max_element(row, row + width) - row));
  return best;
}

}  // namespace dsf::serve::test
