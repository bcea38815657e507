#pragma once
// Whole runs against the scripted server, shared by the tests of the matrix and of what is beside it.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "dsf/io/file.h"
#include "dsf/test/support.h"
#include "tools/bench/campaign.h"
#include "tools/bench/compare.h"
#include "tools/bench/options.h"
#include "tools/bench/rate.h"
#include "tools/bench/raw_file.h"
#include "tools/bench/run.h"
#include "tools/bench/scripted.h"

namespace dsf::bench::test {

using dsf::test::TempDir;

// A server that plays one shape to everybody, with the request's cap.
inline std::unique_ptr<ScriptedServer> serve(StreamShape shape, ScriptedOptions options = {}) {
  if (options.identity.empty()) options.identity = {{"checkpoint_sha256", std::string(64, 'c')}};
  auto server = ScriptedServer::start(options, [shape](const json::Value& body, int) {
    StreamShape s = shape;
    if (const json::Value* cap = body.find("max_tokens")) s.max_tokens = static_cast<int>(cap->to_i64().value_or(0));
    const json::Value* ids = body.find("return_token_ids");
    s.token_ids = s.token_ids && ids != nullptr && ids->as_bool();
    return make_script(s);
  });
  REQUIRE(server);
  return std::move(*server);
}

inline StreamShape quick() {
  StreamShape s;
  s.first_ms = 3;
  s.gap_ms = 0.5;
  return s;
}

inline RawOptions raw_for(const ScriptedServer& server, const std::filesystem::path& out, const std::string& levels = "1-2", int64_t output_tokens = 16) {
  RawOptions raw;
  raw.base_url = server.base_url();
  raw.model = "scripted";
  raw.label = "test";
  raw.levels = levels;
  raw.output_tokens = output_tokens;
  raw.skip_warmup = true;
  raw.cooldown_ms = 0;
  raw.out = out.string();
  raw.common.quiet = true;
  raw.api_key_env = "DSF_TEST_NO_SUCH_KEY";
  return raw;
}

inline Plan plan_of(const RawOptions& raw) {
  auto plan = make_plan(raw, {0, nullptr});
  REQUIRE_MESSAGE(plan, (plan ? std::string() : plan.error().line()));
  return std::move(*plan);
}
inline Plan plan_for(const ScriptedServer& server, const std::filesystem::path& out, const std::string& levels = "1-2", int64_t output_tokens = 16) {
  return plan_of(raw_for(server, out, levels, output_tokens));
}

struct Ran {
  Outcome outcome;
  RunData data;
  Summary summary;
};
inline std::unique_ptr<Ran> run(const Plan& plan) {
  auto outcome = run_plan(plan);
  REQUIRE_MESSAGE(outcome, (outcome ? std::string() : outcome.error().line()));
  auto ran = std::make_unique<Ran>();
  ran->outcome = std::move(*outcome);
  auto data = load_run(plan.out);
  REQUIRE(data);
  ran->data = std::move(*data);
  auto summary = summarize(ran->data);
  REQUIRE(summary);
  ran->summary = std::move(*summary);
  return ran;
}

// A stream played within a few milliseconds on a busy machine is rightly called client bound; everything else must be fine.
inline bool valid(const Ran& ran) {
  return std::all_of(ran.summary.reasons.begin(), ran.summary.reasons.end(), [](const std::string& r) { return r == "client_bound"; });
}

inline std::vector<std::string> refusals(const Ran& a, const Ran& b, CompareOptions options = {}) {
  const auto c = compare({&a.summary, &b.summary}, options);
  REQUIRE(c);
  return c->refusals;
}

inline bool mentions(const std::vector<std::string>& lines, std::string_view word) {
  for (const auto& line : lines) {
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

inline std::string text_of(const std::filesystem::path& path) {
  const auto text = io::read_text(path);
  REQUIRE(text);
  return *text;
}

// The same records with event k of a stream gap_ms * (k + 1) after its release (more in later repeats): times that no busy machine can spoil.
inline void retime(Ran& ran, double gap_ms) {
  for (auto& r : ran.data.requests) {
    r.t.first_token = r.t.last_token = std::nullopt;
    for (size_t k = 0; k < r.events.size(); ++k) {
      r.events[k].t = *r.t.release + static_cast<int64_t>((gap_ms + 0.1 * static_cast<double>(r.repeat)) * 1e6 * static_cast<double>(k + 1));
      if (!is_token(r.events[k].kind)) continue;
      if (!r.t.first_token) r.t.first_token = r.events[k].t;
      r.t.last_token = r.events[k].t;
    }
  }
  auto summary = summarize(ran.data);
  REQUIRE(summary);
  ran.summary = std::move(*summary);
}

}  // namespace dsf::bench::test
