#pragma once
// UTF-8 one code point at a time, with the Unicode rule for ill-formed input: a maximal subpart is one unit (serving.md 1.7).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dsf::tokenizer {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

enum class Utf8Kind {
  kValid,
  kIllFormed,   // size bytes that can never start a code point, whatever follows
  kIncomplete,  // the text ends inside a sequence that is well formed so far; size reaches to the end
};
struct Utf8Unit {
  uint32_t code_point;  // of kValid
  uint32_t size;        // bytes, at least 1
  Utf8Kind kind;
};

// text must not be empty.
Utf8Unit next_utf8(std::string_view text);

void append_utf8(uint32_t code_point, std::string& out);

}  // namespace dsf::tokenizer
