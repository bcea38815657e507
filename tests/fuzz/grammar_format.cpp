// A reply format from a request: JSON is a schema, anything else an expression. It is refused with words, or every walk through it goes on
// until a whole text is reached.
#include <cstdint>
#include <memory>
#include <string_view>

#include "dsf/base/check.h"
#include "tools/serve/grammar/grammar.h"
#include "tools/serve/grammar/matcher.h"

namespace {

using namespace dsf::serve::grammar;

// A vocabulary of the 256 bytes.
std::shared_ptr<const TokenTrie> bytes_only() {
  TokenTrie trie;
  trie.byte.push_back(0);
  trie.depth.push_back(0);
  trie.token.push_back(-1);
  trie.end.push_back(257);
  for (int32_t b = 0; b < 256; ++b) {
    trie.byte.push_back(static_cast<uint8_t>(b));
    trie.depth.push_back(1);
    trie.token.push_back(b);
    trie.end.push_back(b + 2);
  }
  trie.n_ids = 256;
  trie.deepest = 1;
  return std::make_shared<const TokenTrie>(std::move(trie));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto trie = bytes_only();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto schema = dsf::json::parse(text, "fuzz", {.reject_duplicate_keys = false});
  const auto grammar = schema ? of_schema(*schema, "schema") : of_regex(text, "regex");
  if (!grammar) {
    DSF_CHECK(!grammar.error().subject.empty() && !grammar.error().what.empty(), "an error without words");
    return 0;
  }
  Matcher m(*grammar, trie);
  std::vector<int32_t> allowed;
  uint64_t pick = 0x9E3779B97F4A7C15u + size;
  for (int i = 0; i < 48; ++i) {
    m.allowed(allowed);
    DSF_CHECK(allowed.empty() == !m.may_go_on(), "a mask that leads nowhere");
    if (allowed.empty()) {
      DSF_CHECK(m.may_end(), "nothing may follow what is not whole");
      break;
    }
    pick = pick * 6364136223846793005u + 1442695040888963407u;
    const char byte = static_cast<char>(allowed[(pick >> 33) % allowed.size()]);
    DSF_CHECK(m.advance({&byte, 1}), "an allowed byte does not fit");
  }
  return 0;
}
