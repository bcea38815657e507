// dsf-serve score as a library: inputs, log-probabilities, the logits file.
#include "tools/serve/score/score.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/test/support.h"
#include "tiny.h"

namespace dsf::serve::test {

TEST_CASE("token ids are read from a JSON array and from plain numbers, and nothing else") {
  CHECK(*parse_token_ids("[1, 2,\n3]", "f") == Ids{1, 2, 3});
  CHECK(*parse_token_ids(" 1 2\n3\n", "f") == Ids{1, 2, 3});
  CHECK(parse_token_ids("", "f")->empty());
  CHECK(parse_token_ids("  ", "f")->empty());
  for (const char* bad : {"1,2", "1 -2", "[1, 2", "[1.5]", "[\"1\"]", "4294967296", "x"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_token_ids(bad, "f").has_value());
  }
}

TEST_CASE("contexts are cut before every BOS token") {
  const Ids ids = {7, 0, 1, 2, 0, 0, 3};
  std::vector<Ids> got;
  for (const auto c : contexts_of(ids, 0)) got.emplace_back(c.begin(), c.end());
  CHECK(got == std::vector<Ids>{{7}, {0, 1, 2}, {0}, {0, 3}});
  CHECK(contexts_of({}, 0).empty());
}

TEST_CASE("score gives the references' logits, and log-probabilities that follow from them") {
  const auto tiny = Tiny::open("tiny_v41 score");
  if (!tiny) return;
  const dsf::test::TempDir dir;
  const Ids ids = tiny->ids("prompt1.input_ids");
  std::string text;
  for (const int32_t id : ids) text += std::to_string(id) + " ";
  REQUIRE(io::write_file_atomic(dir / "ids.txt", text).has_value());
  ScoreOptions options;
  options.model_dir = tiny->dir();
  options.token_ids_file = dir / "ids.txt";
  options.logits_out = dir / "logits.safetensors";
  options.chunk = 10;
  options.fake_quant = false;
  const auto report = score(options);
  REQUIRE_MESSAGE(report.has_value(), (report ? std::string() : report.error().line()));
  CHECK(report->ids == ids);
  const Floats want = tiny->floats("prompt1.logits_nofq");
  const auto file = safetensors::File::open(options.logits_out);
  REQUIRE(file.has_value());
  CHECK(file->tensor("logits")->shape() == tensor::Shape{37, 256});
  CHECK(max_difference(*safetensors::to_f32(*file->tensor("logits")), want) < 5e-5f);
  CHECK(report->greedy == argmax_rows(want, 256));
  double nll = 0;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    double sum = 0;
    for (size_t v = 0; v < 256; ++v) sum += std::exp(static_cast<double>(want[t * 256 + v]));
    const double lp = want[t * 256 + static_cast<size_t>(ids[t + 1])] - std::log(sum);
    CHECK(report->logprobs[t].value() == doctest::Approx(lp).epsilon(1e-4));
    nll -= lp;
  }
  CHECK(report->mean_nll == doctest::Approx(nll / 36).epsilon(1e-5));
  CHECK(report->perplexity == doctest::Approx(std::exp(nll / 36)).epsilon(1e-4));
  const auto document = to_json(*report, options);
  REQUIRE(document.has_value());
  CHECK(document->find("n_predicted")->to_i64() == 36);
  CHECK(document->find("items")->as_array().size() == 37);
  // Every input by its digest: the checkpoint's files and what was scored.
  std::map<std::string, std::string> inputs;
  for (const json::Value& input : document->find("inputs")->as_array())
    inputs[input.find("path")->as_string()] = input.find("sha256")->as_string();
  CHECK(inputs.at("ids.txt") == codec::sha256(std::string_view(text)).hex());
  for (const char* name : {"config.json", "engram_token_map.json"})
    CHECK(inputs.at(name) == codec::sha256_file(tiny->dir() / name)->hex());
  CHECK(std::ranges::count_if(inputs, [](const auto& i) { return i.first.ends_with(".safetensors"); }) >= 1);
}

TEST_CASE("with restarts every context is scored as if it were alone") {
  const auto tiny = Tiny::open("tiny_v41 score");
  if (!tiny) return;
  const dsf::test::TempDir dir;
  ScoreOptions options;
  options.model_dir = tiny->dir();
  options.token_ids_file = dir / "ids.txt";
  const auto scored = [&](const std::string& ids) {
    REQUIRE(io::write_file_atomic(options.token_ids_file, ids).has_value());
    auto report = score(options);
    REQUIRE_MESSAGE(report.has_value(), (report ? std::string() : report.error().line()));
    return std::move(*report);
  };
  const std::string bos = std::to_string(tiny->engine(true)->config().bos_token_id);
  const ScoreReport first = scored(bos + " 5 6 7"), second = scored(bos + " 8 9 10 11");
  options.restart_at_bos = true;
  const ScoreReport both = scored(bos + " 5 6 7 " + bos + " 8 9 10 11");
  CHECK(both.n_predicted == 7);
  CHECK(!both.logprobs[3]);
  for (size_t t = 0; t < 3; ++t) CHECK(both.logprobs[t] == first.logprobs[t]);
  for (size_t t = 0; t < 4; ++t) CHECK(both.logprobs[4 + t] == second.logprobs[t]);
  CHECK(both.mean_nll == doctest::Approx((3 * first.mean_nll + 4 * second.mean_nll) / 7));
}

TEST_CASE("score says what is wrong with its input") {
  const auto tiny = Tiny::open("tiny_v41 score");
  if (!tiny) return;
  const dsf::test::TempDir dir;
  ScoreOptions options;
  options.model_dir = tiny->dir();
  CHECK(score(options).error().code == Code::kUsage);  // neither ids nor text
  options.text_file = dir / "text.txt";
  CHECK(score(options).error().code == Code::kMissing);  // this checkpoint has no tokenizer
  options.text_file.clear();
  options.token_ids_file = dir / "ids.txt";
  CHECK(score(options).error().code == Code::kMissing);
  REQUIRE(io::write_file_atomic(dir / "ids.txt", "1 2 256").has_value());
  CHECK(score(options).error().code == Code::kUsage);  // outside the vocabulary
  REQUIRE(io::write_file_atomic(dir / "ids.txt", " ").has_value());
  CHECK(score(options).error().code == Code::kUsage);
}

}  // namespace dsf::serve::test
