#include "tests/support/quantize/options.h"

#include <doctest/doctest.h>

using namespace dsf;
using namespace dsf::quantize;

namespace {

Result<std::optional<Plan>> parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "dsf-quantize");
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  return parse_plan({static_cast<int>(argv.size()), argv.data()});
}

}  // namespace

TEST_CASE("widths by role, a number alone for the others") {
  const auto w = Widths::parse("experts=3,attention=5,4,head=6");
  REQUIRE(w);
  CHECK(w->bits("layers.3.ffn.experts.17.w2") == 3);
  CHECK(w->bits("layers.3.ffn.shared_experts.w1") == 4);
  CHECK(w->bits("layers.0.attn.wo_a.slice.1") == 5);
  CHECK(w->bits("layers.2.attn.indexer.wk") == 4);
  CHECK(w->bits("layers.2.attn.compressor.wgate") == 4);
  CHECK(w->bits("mtp.0.ffn.experts.0.w1") == 4);
  CHECK(w->bits("head") == 6);
  const auto drafts = Widths::parse("2,draft=7,shared=8,indexer=1,compressor=5,engram=6");
  REQUIRE(drafts);
  CHECK(drafts->bits("mtp.1.attn.wkv") == 7);
  CHECK(drafts->bits("mtp.0.main_proj") == 7);
  CHECK(drafts->bits("layers.0.ffn.shared_experts.w3") == 8);
  CHECK(drafts->bits("layers.2.attn.indexer.wq_b") == 1);
  CHECK(drafts->bits("layers.2.attn.compressor.wkv") == 5);
  CHECK(drafts->bits("layers.1.engram.wkv") == 6);
  CHECK(drafts->bits("layers.1.attn.wkv") == 2);
}

TEST_CASE("widths that mean nothing are usage errors") {
  for (const char* bad :
       {"", "0", "9", "x", "experts=3", "experts=3,experts=4,5", "3,4", "nose=3,4", "experts=,4", "4,"}) {
    CAPTURE(bad);
    const auto w = Widths::parse(bad);
    REQUIRE(!w);
    CHECK(w.error().code == Code::kUsage);
  }
}

TEST_CASE("flags that change nothing or miss something are refused") {
  const std::vector<std::string> enough = {"--native", "a", "--output", "b", "--bits", "3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), enough.begin(), enough.end());
    return parsed(more);
  };
  REQUIRE(parsed(enough));
  CHECK(with({"--calibration", "c", "--no-ldlq"})->value().ldlq == false);
  CHECK(with({"--no-ldlq"}).error().code == Code::kUsage);
  CHECK(with({"--engram", "e"}).error().code == Code::kUsage);
  CHECK(with({"--max-shard-bytes", "1MiB"})->value().max_shard_bytes == 1 << 20);
  for (size_t left_out = 0; left_out < enough.size(); left_out += 2) {
    auto some = enough;
    some.erase(some.begin() + static_cast<std::ptrdiff_t>(left_out),
               some.begin() + static_cast<std::ptrdiff_t>(left_out) + 2);
    CHECK(parsed(some).error().code == Code::kUsage);
  }
}
