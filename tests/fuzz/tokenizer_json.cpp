// tokenizer.json: any bytes give a tokenizer or an error; a tokenizer that was accepted works on any text.
#include <cstdint>
#include <string_view>

#include "dsf/base/check.h"
#include "dsf/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsf::tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tok = Tokenizer::parse(text, "fuzz");
  if (!tok) {
    DSF_CHECK(!tok.error().what.empty(), "an error without words");
    return 0;
  }
  const std::string_view sample = text.substr(0, 2048);
  for (const Specials specials : {Specials::kOff, Specials::kParse}) {
    const auto ids = tok->encode(sample, specials);
    for (const TokenId id : ids) DSF_CHECK(tok->has(id), "an id without a token");
    StreamDecoder stream(*tok, false);
    std::string streamed = stream.push(ids);
    streamed += stream.finish();
    DSF_CHECK(streamed == tok->decode(ids, false), "stream and whole differ");
  }
  return 0;
}
