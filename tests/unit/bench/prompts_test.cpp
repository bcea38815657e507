#include "tools/bench/prompts.h"

#include <doctest/doctest.h>

#include "dsf/codec/sha256.h"

using namespace dsf;
using namespace dsf::bench;

namespace {
std::string hash(const PromptKey& key) { return codec::sha256(prompt_text(key)).hex(); }
std::string first_line(const PromptKey& key) {
  const std::string text = prompt_text(key);
  return text.substr(0, text.find('\n'));
}
std::string whole_pass(const std::string& phase, const std::string& thinking) {
  std::vector<std::string> hashes;
  for (int c = 1; c <= 8; ++c) {
    for (int slot = 0; slot < c; ++slot) hashes.push_back(hash({1, 27, phase, thinking, c, 0, slot}));
  }
  CHECK(hashes.size() == 36);
  return pass_hash(hashes);
}
}  // namespace

TEST_CASE("prompts equal the published vectors") {
  CHECK(first_line({1, 27, "decode", "off", 1, 0, 0}) == "debt band cell gear coal fall fact bear");
  CHECK(hash({1, 27, "decode", "off", 1, 0, 0}) == "a3cb183fb36f2625bbda0e81dbee32852e2b1c678ad82f9aa6255240a7a2ae61");
  CHECK(first_line({1, 27, "decode", "75", 8, 0, 7}) == "film hint ball cake held love exit leaf");
  CHECK(hash({1, 27, "decode", "75", 8, 0, 7}) == "5bea14879b41ee980e8a9c0dfc4e913c508186addebf8d307494e3e83261cb5a");
  CHECK(first_line({1, 27, "prefill", "off", 2, 0, 1}) == "kept look loud hunt cash glad lead dead");
  CHECK(hash({1, 27, "prefill", "off", 2, 0, 1}) == "05725213c502d995414ad49dbe6ee81c746a6c6d3eb64ba5e47f1c423ceaab96");
  CHECK(first_line({1, 2, "decode", "off", 1, 0, 0}) == "hand luck desk lift base cell gate fill");
  CHECK(hash({1, 2, "decode", "off", 1, 0, 0}) == "49931bb7428d0b78acf093912e147137fc14fc7a804403b1b5823faeb63bbb89");
  CHECK(prompt_text({1, 27, "decode", "off", 1, 0, 0}).size() == 2157);
  CHECK(prompt_text({1, 2, "decode", "off", 1, 0, 0}).size() == 382);
  CHECK(prompt_selftest());
}

TEST_CASE("pass hashes equal the published ones") {
  CHECK(whole_pass("decode", "off") == "101fc23909ebfe4c5189907b245bd4dbe1ae96341b4429f683601e547471fb8c");
  CHECK(whole_pass("decode", "75") == "3bdd615f9313652a3165481f900cb2979fd4e305b129a498d986d54c321e0445");
  CHECK(whole_pass("prefill", "off") == "721ca4948f840f8db0ea028e773bc1f5f0e982c2979deabc8f02b9eac632f39e");
  CHECK(whole_pass("prefill", "75") == "aaa2bde73725e4cd344102206317453f886aedbdf2de1c0b31b257d90fd21646");
}
