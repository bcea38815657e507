#include "dsf/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/test/support.h"

using namespace dsf;
using tokenizer::Specials;
using tokenizer::Tokenizer;

TEST_CASE("every published tokenizer vector of the release") {
  const auto data = test::shared_data();
  if (data.empty()) return test::skip("tokenizer vectors", "shared data not present");
  const auto tok = Tokenizer::load(data / "tokenizer_v41_reconstructed.json");
  REQUIRE_MESSAGE(tok, tok.error().line());
  const auto text = io::read_text(data / "tokenizer_vectors_v41.json");
  REQUIRE(text);
  const auto doc = json::parse(*text, "vectors");
  REQUIRE(doc);
  for (const json::Value& c : doc->find("cases")->as_array()) {
    const std::string& input = c.find("text")->as_string();
    CAPTURE(input);
    std::vector<int32_t> want;
    for (const json::Value& id : c.find("ids")->as_array()) want.push_back(static_cast<int32_t>(*id.to_i64()));
    CHECK(tok->encode(input, Specials::kParse) == want);
    CHECK(tok->decode(want, false) == input);
  }
}
