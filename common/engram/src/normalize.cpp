// The token map's text normalisation (engram.md 2.3). utf8proc knows decompositions, categories and simple lower case. Full lower
// case differs from simple only for U+0130, which step 2 has already taken apart.
#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "dsf/engram/token_map.h"

namespace dsf::engram {
namespace {

constexpr int32_t kSentinel = 0xE000, kReplacement = 0xFFFD;

std::vector<int32_t> decode(std::string_view text) {
  std::vector<int32_t> out;
  const auto* p = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t c = -1;
    const auto n = utf8proc_iterate(p + i, static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    out.push_back(n > 0 ? c : kReplacement);
    i += n > 0 ? static_cast<size_t>(n) : 1;
  }
  return out;
}

std::string encode(std::span<const int32_t> codepoints) {
  std::string out;
  for (const int32_t c : codepoints) {
    utf8proc_uint8_t bytes[4];
    const auto n = utf8proc_encode_char(c, bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
  }
  return out;
}

bool is_mark(int32_t c) {
  const auto category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

// Unicode White_Space; the property has had these members since Unicode 6.3.
bool is_white_space(int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// NFKC then NFD is NFKD. Marks are dropped as they appear, so their canonical order does not matter.
std::vector<int32_t> decompose_without_marks(const std::vector<int32_t>& in) {
  std::vector<int32_t> out;
  std::vector<utf8proc_int32_t> parts(64);
  for (const int32_t c : in) {
    int last_class = 0;
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    auto n = utf8proc_decompose_char(c, parts.data(), static_cast<utf8proc_ssize_t>(parts.size()), options, &last_class);
    if (n < 0) n = 0;  // cannot happen: no decomposition is longer than 18 code points
    for (size_t i = 0; i < static_cast<size_t>(n); ++i)
      if (!is_mark(parts[i])) out.push_back(utf8proc_tolower(parts[i]));
  }
  return out;
}

std::vector<int32_t> collapse_blanks(const std::vector<int32_t>& in) {
  std::vector<int32_t> out;
  bool in_run = false;
  for (const int32_t c : in) {
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank) out.push_back(c);
    else if (!in_run) out.push_back(' ');
    in_run = blank;
  }
  return out;
}

}  // namespace

std::string normalize(std::string_view text) {
  std::vector<int32_t> s = collapse_blanks(decompose_without_marks(decode(text)));
  if (s.size() == 1 && s[0] == ' ') s[0] = kSentinel;  // survives the strip
  const auto first = std::find_if_not(s.begin(), s.end(), is_white_space);
  const auto last = std::find_if_not(s.rbegin(), std::make_reverse_iterator(first), is_white_space).base();
  std::vector<int32_t> stripped(first, last);
  std::replace(stripped.begin(), stripped.end(), kSentinel, int32_t{' '});
  return encode(stripped);
}

}  // namespace dsf::engram
