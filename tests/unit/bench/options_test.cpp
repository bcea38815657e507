#include "tools/bench/options.h"

#include <doctest/doctest.h>

#include "tools/bench/scrape.h"
#include "tools/bench/thresholds.h"

using namespace dsf;
using namespace dsf::bench;

TEST_CASE("levels are lists of numbers and ranges") {
  CHECK(*parse_levels("1-3,8,2") == std::vector<int64_t>{1, 2, 3, 8});
  for (const char* bad : {"", "0", "3-1", "a", "1-", "99999"}) CHECK(parse_levels(bad).error().code == Code::kUsage);
}

TEST_CASE("a plan needs a model, a label, and modes that exist") {
  RawOptions raw;
  raw.model = "m";
  raw.label = "l";
  raw.api_key_env = "DSF_TEST_NO_SUCH_KEY";
  const cli::Args none{0, nullptr};
  CHECK(make_plan(raw, none));
  CHECK(make_plan(raw, none)->settings.phases == std::vector<std::string>{"decode"});
  raw.output_tokens = 1;
  CHECK(make_plan(raw, none)->settings.phases == std::vector<std::string>{"prefill"});
  raw.output_tokens = 64;
  raw.matrix = true;
  CHECK(make_plan(raw, none)->settings.thinkings == std::vector<std::string>{"off", "75"});
  for (const char* bad : {"0", "101", "075", "loud", "off,off", ""}) {
    raw.thinking = bad;
    CHECK_FALSE(make_plan(raw, none));
  }
  raw.thinking = "75";
  raw.label.clear();
  CHECK(make_plan(raw, none).error().subject == "--label");
}

TEST_CASE("settings that a comparison cares about change their hash, others do not") {
  Settings s;
  s.levels = {1, 2};
  const std::string base = settings_sha256(settings_json(s, "decode", "off"));
  s.temperature = 0.5;
  CHECK(settings_sha256(settings_json(s, "decode", "off")) != base);
  s.temperature = 0;
  CHECK(settings_sha256(settings_json(s, "decode", "off")) == base);
  CHECK(settings_sha256(settings_json(s, "decode", "75")) != base);
}

TEST_CASE("thresholds say what they are about") {
  CHECK(parse_threshold("decode.off.c1=50")->limit == 50);
  CHECK(parse_threshold("ttft.off.c1.median_ms=1.5"));
  CHECK(parse_threshold("prefill.75.best=400"));
  for (const char* bad : {"decode.off.c1", "speed.off.c1=1", "decode.off=1", "decode.off.x=1", "ttft.off.c1.p99=1", "decode.off.c1=fast"}) {
    CHECK(parse_threshold(bad).error().code == Code::kUsage);
  }
}

TEST_CASE("Prometheus text: sums over labels, digests from labels, rubbish skipped") {
  const Scrape s = parse_metrics(
      "# HELP x y\nvllm:prefix_cache_hits_total{engine=\"0\"} 10\nvllm:prefix_cache_hits_total{engine=\"1\"} 5 1700000000\r\n"
      "vllm:prefix_cache_queries_total 100\nh_bucket{le=\"1\"} 4\ndsf_info{checkpoint_sha256=\"ab\\\"c\",name=\"x\"} 1\nbroken{ 1\nnan NaN\n= 1\n");
  CHECK(s.samples.at("vllm:prefix_cache_hits_total") == 15);
  CHECK(s.samples.count("h_bucket") == 0);
  CHECK(s.samples.count("nan") == 0);
  CHECK(s.digests.at("checkpoint_sha256") == "ab\\\"c");
  const auto d = difference({{"vllm:prefix_cache_hits_total", 15}, {"vllm:prefix_cache_queries_total", 100}},
                            {{"vllm:prefix_cache_hits_total", 20}, {"vllm:prefix_cache_queries_total", 200}});
  CHECK(*d.cache_hit_fraction == doctest::Approx(0.05));
  CHECK_FALSE(difference({}, {}).cache_hit_fraction);
}
