// Every layer of one prompt against the references' traces: streams, sub-layer outputs, and the discrete choices, which
// must be equal.
#include <doctest/doctest.h>

#include <map>

#include "tiny.h"

namespace dsf::serve::test {
namespace {

struct Recorded {
  std::map<std::string, Floats> values;
  std::map<std::string, Ids> ids;
};

std::string key(std::string_view what, int64_t layer) {
  return "layer" + std::to_string(layer) + "." + std::string(what);
}

void record(Trace& trace, Recorded& r) {
  trace.values = [&r](std::string_view what, int64_t layer, std::span<const float> v, int64_t) {
    Floats& all = r.values[key(what, layer)];
    all.insert(all.end(), v.begin(), v.end());
  };
  trace.ids = [&r](std::string_view what, int64_t layer, int64_t, std::span<const int32_t> v, int64_t) {
    Ids& all = r.ids[key(what, layer)];
    all.insert(all.end(), v.begin(), v.end());
  };
}

// Candidate blocks as the reference's mask over compressed rows: [n, n].
Ids block_mask(const Ids& blocks, int64_t n, int64_t max_blocks, int64_t block_size) {
  Ids mask(static_cast<size_t>(n * n));
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t b = 0; b < max_blocks; ++b) {
      const int64_t block = blocks[static_cast<size_t>(r * max_blocks + b)];
      for (int64_t g = block * block_size; block >= 0 && g < std::min((block + 1) * block_size, n); ++g)
        mask[static_cast<size_t>(r * n + g)] = 1;
    }
  }
  return mask;
}

void check_trace(const Tiny& tiny, bool fake_quant, float bound) {
  const std::string prefix = fake_quant ? "trace." : "trace_nofq.";
  Recorded r;
  const auto engine = tiny.engine(fake_quant);
  record(engine->trace(), r);
  const Ids ids = tiny.ids("prompt1.input_ids");
  feed(*engine, open_session(*engine), ids);
  const model::Config& c = engine->config();
  std::vector<std::string> values, choices;
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    for (const char* what : {"x", "pre"}) values.push_back(key(what, layer));
    if (c.engram_index(layer) >= 0) values.push_back(key("engram_x", layer));
    for (const char* what : {"attn_out", "moe_out", "expert_weights"}) {
      if (fake_quant) values.push_back(key(what, layer));
    }
    choices.push_back(key("expert_ids", layer));
  }
  for (const int64_t layer : c.index_source_layer_ids) choices.push_back(key("topk", layer));
  choices.push_back(key("candidate_blocks", c.candidate_source_layer_id));
  for (const std::string& name : values) {
    CAPTURE(name);
    CHECK(max_difference(r.values.at(name), tiny.floats(prefix + name)) < bound);
  }
  for (const std::string& name : choices) {
    CAPTURE(name);
    CHECK(r.ids.at(name) == tiny.ids(prefix + name));
  }
  if (!fake_quant) return;
  CHECK(block_mask(r.ids.at("layer6.candidate_blocks"), std::ssize(ids), c.candidate_topk_blocks,
                   c.candidate_block_size) == tiny.ids("trace.layer6.candidate_mask"));
}

}  // namespace

TEST_CASE("streams, sub-layer outputs, experts, selections and candidate blocks of every layer equal the references") {
  const auto tiny = Tiny::open("tiny_v41 traces");
  if (!tiny) return;
  check_trace(*tiny, false, 5e-5f);
  check_trace(*tiny, true, 5e-5f);
}

TEST_CASE("draft streams of every stage equal the reference") {
  const auto tiny = Tiny::open("tiny_v41 draft traces");
  if (!tiny) return;
  for (const bool fake_quant : {false, true}) {
    const std::string prefix = fake_quant ? "trace_draft." : "trace_draft_nofq.";
    Recorded r;
    const auto engine = tiny->engine(fake_quant);
    const SessionId session = open_session(*engine);
    const Ids prompt = tiny->ids("prompt1.input_ids");
    feed_chunks(*engine, session, std::span(prompt).first(prompt.size() - 1), 512);
    record(engine->trace(), r);
    feed(*engine, session, std::span(prompt).last(1));
    CHECK(max_difference(r.values.at("layer-1.main_x"), tiny->floats(prefix + "main_x")) < 5e-5f);
    r.values.clear();
    REQUIRE(engine->draft(session, tiny->ids("prompt1.cont_ids")[0]).has_value());
    for (int64_t stage = 0; stage < engine->config().num_nextn_predict_layers; ++stage) {
      for (const char* what : {"x", "pre"}) {
        CAPTURE(stage);
        CHECK(max_difference(r.values.at(key(what, engine->config().num_hidden_layers + stage)),
                             tiny->floats(prefix + "stage" + std::to_string(stage) + "." + what)) <
              (fake_quant ? 1e-2f : 5e-5f));
      }
    }
  }
}

TEST_CASE("injected streams replace the layer's own: a ruined lower half does not reach the upper one") {
  const auto tiny = Tiny::open("tiny_v41 injection");
  if (!tiny) return;
  const auto engine = tiny->engine(true);
  const Floats x = tiny->floats("trace.layer5.x"), pre = tiny->floats("trace.layer5.pre");
  Recorded r;
  record(engine->trace(), r);
  engine->trace().enter = [&](int64_t layer, std::span<float> own_x, std::span<float> own_pre) {
    if (layer == 0) std::fill(own_x.begin(), own_x.end(), 0.0f);
    if (layer != 6) return;  // owns its rows, keys and selection: depends on the streams alone
    std::copy(x.begin(), x.end(), own_x.begin());
    std::copy(pre.begin(), pre.end(), own_pre.begin());
  };
  feed(*engine, open_session(*engine), tiny->ids("prompt1.input_ids"));
  CHECK(max_difference(r.values.at("layer5.x"), x) > 0.1f);
  CHECK(max_difference(r.values.at("layer9.x"), tiny->floats("trace.layer9.x")) < 5e-5f);
}

}  // namespace dsf::serve::test
