// The release's pre-tokenizer as a scanner.
//
// Names follow serving.md 1.2: A takes digits in threes, B runs of ideographs and kana, C works inside what is left between them. C's
// alternatives are tried in its order; each function returns the end of the match, or its start for none.
#include <utility>

#include "char_class.h"
#include "pre_tokenizer.h"
#include "utf8.h"

namespace dsf::tokenizer {
namespace {

constexpr uint8_t kWord = kLetter | kMark;
constexpr uint8_t kSign = kPunctuation | kSymbol;

bool ascii_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool ascii_sign(char c) { return c > ' ' && c < 0x7F && !ascii_letter(c) && !(c >= '0' && c <= '9'); }

class Scanner {
 public:
  Scanner(std::string_view text, const PieceSink& sink) : text_(text), sink_(sink), classes_(char_classes()) {}

  void run() {
    size_t pos = 0;
    while (pos < text_.size()) {
      const auto [classes, size] = at(pos);
      if (classes & kNumber) {
        size_t end = pos + size;
        for (int n = 1; n < 3 && end < text_.size(); ++n) {
          const auto [next, next_size] = at(end);
          if (!(next & kNumber)) break;
          end += next_size;
        }
        pos = emit(pos, end);
      } else if (classes & kKana) {
        pos = emit(pos, skip(pos, text_.size(), kKana));
      } else {
        size_t end = pos;
        while (end < text_.size()) {
          const auto [next, next_size] = at(end);
          if (next & (kNumber | kKana)) break;
          end += next_size;
        }
        words(pos, end);
        pos = end;
      }
    }
  }

 private:
  struct Char {
    uint8_t classes;
    uint32_t size;
  };
  Char at(size_t pos) const {
    const auto byte = static_cast<uint8_t>(text_[pos]);
    if (byte < 0x80) return {classes_[byte], 1};
    const Utf8Unit unit = next_utf8(text_.substr(pos));
    return {unit.kind == Utf8Kind::kValid ? classes_[unit.code_point] : uint8_t{0}, unit.size};
  }
  size_t emit(size_t begin, size_t end) {
    if (end > begin) sink_(text_.substr(begin, end - begin));
    return end;
  }
  // The end of the run of characters of these classes.
  size_t skip(size_t pos, size_t end, uint8_t classes) const {
    while (pos < end) {
      const Char c = at(pos);
      if (!(c.classes & classes)) break;
      pos += c.size;
    }
    return pos;
  }

  // Pattern C over [pos, end), whose end is the end of the string for its lookahead. What no alternative takes gathers in one piece.
  void words(size_t pos, size_t end) {
    size_t gap = pos;
    while (pos < end) {
      const Char first = at(pos);
      size_t stop = sign_and_word(pos, end);
      if (stop == pos) stop = word(pos, end, first);
      if (stop == pos) stop = signs(pos, end, first);
      if (stop == pos) stop = spaces(pos, end, first);
      if (stop == pos) {
        pos += first.size;
        continue;
      }
      emit(gap, pos);
      gap = pos = emit(pos, stop);
    }
    emit(gap, end);
  }
  // [!-/:-@[-`{-~][A-Za-z]+
  size_t sign_and_word(size_t pos, size_t end) const {
    if (!ascii_sign(text_[pos])) return pos;
    size_t stop = pos + 1;
    while (stop < end && ascii_letter(text_[stop])) ++stop;
    return stop > pos + 1 ? stop : pos;
  }
  // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
  size_t word(size_t pos, size_t end, Char first) const {
    if (!(first.classes & (kNewline | kLetter | kSign))) {
      const size_t begin = pos + first.size;
      if (const size_t stop = skip(begin, end, kWord); stop > begin) return stop;
    }
    return skip(pos, end, kWord);
  }
  // ` ?[\p{P}\p{S}]+[\r\n]*`
  size_t signs(size_t pos, size_t end, Char first) const {
    const size_t begin = text_[pos] == ' ' ? pos + first.size : pos;
    const size_t stop = skip(begin, end, kSign);
    return stop > begin ? skip(stop, end, kNewline) : pos;
  }
  // \s*[\r\n]+|\s+(?!\S)|\s+
  size_t spaces(size_t pos, size_t end, Char first) const {
    if (!(first.classes & kSpace)) return pos;
    size_t stop = pos, last = pos, after_newline = pos;
    while (stop < end) {
      const Char c = at(stop);
      if (!(c.classes & kSpace)) break;
      last = stop;
      stop += c.size;
      if (c.classes & kNewline) after_newline = stop;
    }
    if (after_newline > pos) return after_newline;
    return stop == end || last == pos ? stop : last;
  }

  std::string_view text_;
  const PieceSink& sink_;
  const std::array<uint8_t, kCodePoints>& classes_;
};

}  // namespace

void split_release(std::string_view text, const PieceSink& sink) { Scanner(text, sink).run(); }

}  // namespace dsf::tokenizer
