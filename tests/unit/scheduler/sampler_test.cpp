#include "tools/serve/scheduler/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::serve;

namespace {

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0;
  return p;
}

int32_t pick(const SamplingParams& params, const std::vector<float>& logits, uint64_t position = 0,
             std::span<const int32_t> prompt = {}, std::span<const int32_t> reply = {},
             std::span<const int32_t> masked = {}, const std::vector<int32_t>* allowed = nullptr) {
  Sampler sampler(params, prompt);
  for (const int32_t id : reply) sampler.commit(id);
  const auto choice = sampler.pick(logits, position, masked, allowed);
  REQUIRE(choice.has_value());
  return choice->id;
}

// Every vector of one file with "uniform" and "seed_for" cases.
void check_vectors(const std::filesystem::path& path) {
  const auto text = io::read_text(path);
  REQUIRE(text.has_value());
  const auto doc = json::parse(*text, path.filename().string());
  REQUIRE(doc.has_value());
  size_t n = 0;
  for (const json::Value& c : doc->find("uniform")->as_array()) {
    const double want = std::strtod(c.find("u")->as_string().c_str(), nullptr);
    CHECK(uniform(*c.find("seed")->to_u64(), *c.find("position")->to_u64(), *c.find("id")->to_u64()) == want);
    ++n;
  }
  for (const json::Value& c : doc->find("seed_for")->as_array()) {
    std::vector<int32_t> ids;
    for (const json::Value& id : c.find("ids")->as_array()) ids.push_back(static_cast<int32_t>(*id.to_i64()));
    CHECK(seed_for(ids, *c.find("salt")->to_u64()) == *c.find("seed")->to_u64());
    ++n;
  }
  CHECK(n >= 9);
}

// A row with ties, a wide tail and more candidates than the first sorted block.
std::vector<float> long_row(size_t n) {
  std::vector<float> row(n);
  for (size_t i = 0; i < n; ++i) row[i] = static_cast<float>(std::log(uniform(7, 1, i / 2)));
  return row;
}

// The specification, spelled out the slow way.
int32_t reference(const SamplingParams& p, const std::vector<float>& logits, uint64_t position) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto x = [&](int32_t id) { return static_cast<double>(logits[static_cast<size_t>(id)]); };
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return x(a) > x(b); });
  if (p.top_k > 0) ids.resize(std::min(ids.size(), static_cast<size_t>(p.top_k)));
  double total = 0, cumulative = 0;
  for (const int32_t id : ids) total += std::exp((x(id) - x(ids[0])) / p.temperature);
  size_t keep = 0;
  while (keep < ids.size()) {
    cumulative += std::exp((x(ids[keep]) - x(ids[0])) / p.temperature) / total;
    ++keep;
    if (cumulative >= p.top_p) break;
  }
  ids.resize(keep);
  int32_t best = -1;
  double best_score = 0;
  for (const int32_t id : ids) {
    if (p.min_p > 0 && x(id) / p.temperature < x(ids[0]) / p.temperature + std::log(p.min_p)) continue;
    const double score =
        x(id) / p.temperature - std::log(-std::log(uniform(p.seed, position, static_cast<uint64_t>(id))));
    if (best < 0 || score > best_score) best = id, best_score = score;
  }
  return best;
}

}  // namespace

TEST_CASE("the committed vectors of the keyed draw and of default seeds") {
  check_vectors(test::golden() / "keyed_sampling.json");
}

TEST_CASE("every published vector of the keyed draw and of default seeds") {
  if (test::shared_data().empty()) return test::skip("keyed_sampling_vectors.json", "shared data not present");
  check_vectors(test::shared_data() / "keyed_sampling_vectors.json");
}

TEST_CASE("greedy takes the largest logit, the lowest id of equals, and minus zero equals zero") {
  CHECK(pick(greedy(), {1, 3, 3, 2}) == 1);
  CHECK(pick(greedy(), {-0.0F, 0.0F}) == 0);
  SamplingParams tiny = greedy();
  tiny.temperature = 1e-9;  // not zero: the draw, with the divisor held at 1e-6
  CHECK(pick(tiny, {1, 3, 2.9F}) == 1);
}

TEST_CASE("logits that are not finite fail the request, masked ones do not") {
  Sampler sampler(greedy(), {});
  const std::vector<float> nan{0, std::numeric_limits<float>::quiet_NaN()},
      inf{0, std::numeric_limits<float>::infinity()};
  const std::vector<float> masked{-std::numeric_limits<float>::infinity(), -5};
  CHECK_FALSE(sampler.pick(nan, 0).has_value());
  CHECK_FALSE(sampler.pick(inf, 0).has_value());
  CHECK_FALSE(sampler.pick({}, 0).has_value());
  CHECK(sampler.pick(masked, 0)->id == 1);
  const std::vector<int32_t> both{0, 1};
  CHECK_FALSE(sampler.pick(masked, 0, both).has_value());
}

TEST_CASE("the fast choice equals the specification for every mix of filters") {
  const std::vector<float> row = long_row(3000);
  for (const double temperature : {0.3, 1.0, 1.7}) {
    for (const int64_t top_k : {0, 1, 2, 40, 700, 5000}) {
      for (const double top_p : {0.05, 0.5, 0.95, 0.999, 1.0}) {
        for (const double min_p : {0.0, 0.05, 1.0}) {
          for (uint64_t position = 0; position < 8; ++position) {
            SamplingParams p;
            p.temperature = temperature;
            p.top_k = top_k;
            p.top_p = top_p;
            p.min_p = min_p;
            p.seed = 42;
            REQUIRE(pick(p, row, position) == reference(p, row, position));
          }
        }
      }
    }
  }
}

TEST_CASE("the draw follows the softmax") {
  SamplingParams p;
  p.top_p = 1;
  p.seed = 3;
  const std::vector<float> row{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  std::array<int, 3> counts{};
  constexpr int kDraws = 20000;
  for (uint64_t position = 0; position < kDraws; ++position) ++counts[static_cast<size_t>(pick(p, row, position))];
  // Standard deviation of a count is at most 71; five of them.
  CHECK(std::abs(counts[0] - 10000) < 355);
  CHECK(std::abs(counts[1] - 6000) < 355);
  CHECK(std::abs(counts[2] - 4000) < 355);
}

TEST_CASE("top_k, top_p and min_p each keep what they should") {
  const auto kept = [](SamplingParams p) {
    p.seed = 11;
    std::map<int32_t, int> seen;
    for (uint64_t position = 0; position < 2000; ++position)
      ++seen[pick(p, {std::log(0.4F), std::log(0.35F), std::log(0.2F), std::log(0.05F)}, position)];
    return seen.size();
  };
  SamplingParams p;
  p.top_p = 1;
  CHECK(kept(p) == 4);
  p.top_k = 2;
  CHECK(kept(p) == 2);
  p.top_k = 0;
  p.top_p = 0.7;
  CHECK(kept(p) == 2);
  p.top_p = 0.3;
  CHECK(kept(p) == 1);
  p.top_p = 1;
  p.min_p = 0.45;  // 0.2/0.4 stays, 0.05/0.4 goes
  CHECK(kept(p) == 3);
}

TEST_CASE("bias and penalties move the greedy choice as defined") {
  SamplingParams p = greedy();
  p.logit_bias = {{2, 100}, {0, -100}};
  CHECK(pick(p, {5, 1, 0}) == 2);
  p = greedy();
  p.repetition_penalty = 2;
  const std::vector<int32_t> prompt{0}, reply{1, 1};
  CHECK(pick(p, {4, 1, 2.5F}, 0, prompt) == 2);     // 4/2 < 2.5
  CHECK(pick(p, {-1, -1.5F, -9}, 0, prompt) == 1);  // -1*2 < -1.5
  p = greedy();
  p.frequency_penalty = 0.5;
  CHECK(pick(p, {0, 3, 2.5F}, 0, {}, reply) == 2);  // 3 - 2*0.5
  p.frequency_penalty = 0;
  p.presence_penalty = 0.4;
  CHECK(pick(p, {0, 3, 2.5F}, 0, {}, reply) == 1);  // 3 - 0.4, once
  p.presence_penalty = 2;
  CHECK(pick(p, {9, 3, 2.5F}, 0, prompt) == 0);  // the prompt does not count for presence
}

TEST_CASE("masks and allowed sets leave nothing else, greedy and drawn") {
  const std::vector<float> row{9, 1, 2, 3};
  const std::vector<int32_t> masked{0, 3}, allowed{1, 2};
  CHECK(pick(greedy(), row, 0, {}, {}, masked) == 2);
  CHECK(pick(greedy(), row, 0, {}, {}, {}, &allowed) == 2);
  SamplingParams p;
  p.top_p = 1;
  std::map<int32_t, int> seen;
  for (uint64_t position = 0; position < 300; ++position) ++seen[pick(p, row, position, {}, {}, {}, &allowed)];
  CHECK(seen.size() == 2);
  CHECK(seen.count(0) == 0);
  p.top_p = 0.9;  // a mass that counted id 0 would keep everything else out of reach
  CHECK(pick(p, row, 4, {}, {}, {}, &allowed) != 0);
}

TEST_CASE("log-probabilities are those of the raw row, most likely first") {
  SamplingParams p = greedy();
  p.top_logprobs = 2;
  p.logit_bias = {{2, 50}};
  Sampler sampler(p, {});
  const auto choice = sampler.pick(std::vector<float>{std::log(0.5F), std::log(0.3F), std::log(0.2F)}, 0);
  REQUIRE(choice.has_value());
  CHECK(choice->id == 2);
  CHECK(choice->logprob == doctest::Approx(std::log(0.2)));
  REQUIRE(choice->top.size() == 2);
  CHECK(choice->top[0].id == 0);
  CHECK(choice->top[0].logprob == doctest::Approx(std::log(0.5)));
  CHECK(choice->top[1].id == 1);
}

// Values by hand from the formula of serving.md 5.3.
TEST_CASE("the seeds of further choices follow from the first, which is the request's own") {
  CHECK(serve::seed_of_choice(7u, 0) == 7u);
  CHECK(serve::seed_of_choice(7u, 1) == 7191089600892374487u);
  CHECK(serve::seed_of_choice(7u, 2) == 309689372594955804u);
  CHECK(serve::seed_of_choice(9223372036854775807u, 63) == 7894107472957750200u);
}
