#include "byte_alphabet.h"

#include "utf8.h"

namespace dsf::tokenizer {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;
struct Alphabet {
  std::array<int16_t, kAlphabetEnd> byte{};

  constexpr Alphabet() {
    byte.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      byte[printable ? b : next++] = static_cast<int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

bool append_token_bytes(std::string_view token, std::string& out) {
  const size_t start = out.size();
  for (size_t pos = 0; pos < token.size();) {
    const Utf8Unit unit = next_utf8(token.substr(pos));
    if (unit.kind != Utf8Kind::kValid || unit.code_point >= kAlphabetEnd || kAlphabet.byte[unit.code_point] < 0) {
      out.resize(start);
      out += token;
      return false;
    }
    out += static_cast<char>(kAlphabet.byte[unit.code_point]);
    pos += unit.size;
  }
  return true;
}

}  // namespace dsf::tokenizer
