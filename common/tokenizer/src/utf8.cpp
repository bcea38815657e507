#include "utf8.h"

#include "dsf/tokenizer/tokenizer.h"

namespace dsf::tokenizer {

Utf8Unit next_utf8(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80) return {lead, 1, Utf8Kind::kValid};
  if (lead < 0xC2 || lead > 0xF4) return {0, 1, Utf8Kind::kIllFormed};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  uint32_t code_point = lead & (0xFFU >> (length + 1));
  for (uint32_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0, i, Utf8Kind::kIncomplete};
    const uint8_t c = at(i);
    if (c < (i == 1 ? low : 0x80) || c > (i == 1 ? high : 0xBF)) return {0, i, Utf8Kind::kIllFormed};
    code_point = code_point << 6 | (c & 0x3F);
  }
  return {code_point, length, Utf8Kind::kValid};
}

void append_utf8(uint32_t cp, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (cp < 0x80) {
    put(cp);
  } else if (cp < 0x800) {
    put(0xC0 | cp >> 6);
    put(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    put(0xE0 | cp >> 12);
    put(0x80 | (cp >> 6 & 0x3F));
    put(0x80 | (cp & 0x3F));
  } else {
    put(0xF0 | cp >> 18);
    put(0x80 | (cp >> 12 & 0x3F));
    put(0x80 | (cp >> 6 & 0x3F));
    put(0x80 | (cp & 0x3F));
  }
}

namespace {
// Appends the complete units of text to out and returns how many bytes it took; the rest is an incomplete sequence.
size_t append_complete(std::string_view text, std::string& out) {
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Unit unit = next_utf8(text.substr(pos));
    if (unit.kind == Utf8Kind::kIncomplete) break;
    out += unit.kind == Utf8Kind::kValid ? text.substr(pos, unit.size) : kReplacement;
    pos += unit.size;
  }
  return pos;
}
}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  held_ += bytes;
  held_.erase(0, append_complete(held_, out));
}

void Utf8Stream::finish(std::string& out) {
  if (!held_.empty()) out += kReplacement;
  held_.clear();
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (append_complete(bytes, out) != bytes.size()) out += kReplacement;
  return out;
}

}  // namespace dsf::tokenizer
