#include "tools/serve/grammar/chars.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "dsf/json/json.h"

namespace dsf::serve::grammar {
namespace {

constexpr uint32_t kLast = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;
constexpr std::string_view kHex = "0123456789abcdefABCDEF";

int encode(uint32_t c, std::array<uint8_t, 4>& out) {
  const auto tail = [&](int shift) { return static_cast<uint8_t>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return out = {static_cast<uint8_t>(c)}, 1;
  if (c < 0x800) return out = {static_cast<uint8_t>(0xC0 | c >> 6), tail(0)}, 2;
  if (c < 0x10000) return out = {static_cast<uint8_t>(0xE0 | c >> 12), tail(6), tail(0)}, 3;
  return out = {static_cast<uint8_t>(0xF0 | c >> 18), tail(12), tail(6), tail(0)}, 4;
}

// Code points lo..hi of one encoded length, from their byte number `depth` on.
void utf8_range(Network& net, NodeId from, std::span<const uint8_t> lo, std::span<const uint8_t> hi, NodeId to) {
  if (lo.size() == 1) return net.byte(from, lo[0], hi[0], to);
  const auto rest = [&](uint8_t first, uint8_t last, std::span<const uint8_t> a, std::span<const uint8_t> b) {
    const NodeId next = net.node();
    net.byte(from, first, last, next);
    utf8_range(net, next, a, b, to);
  };
  static constexpr std::array<uint8_t, 3> kLow{0x80, 0x80, 0x80}, kHigh{0xBF, 0xBF, 0xBF};
  const std::span<const uint8_t> a = lo.subspan(1), b = hi.subspan(1);
  const auto lowest = std::span(kLow).first(a.size()), highest = std::span(kHigh).first(a.size());
  if (lo[0] == hi[0]) return rest(lo[0], lo[0], a, b);
  uint8_t first = lo[0], last = hi[0];
  if (!std::equal(a.begin(), a.end(), lowest.begin())) rest(first, first, a, highest), ++first;
  if (!std::equal(b.begin(), b.end(), highest.begin())) rest(last, last, lowest, b), --last;
  if (first <= last) rest(first, last, lowest, highest);
}

void utf8(Network& net, NodeId from, CharRange range, NodeId to) {
  static constexpr std::array<uint32_t, 4> kEnds{0x7F, 0x7FF, 0xFFFF, kLast};
  for (const uint32_t end : kEnds) {
    if (range.lo > end) continue;
    const uint32_t hi = std::min(range.hi, end);
    std::array<uint8_t, 4> a{}, b{};
    const auto n = static_cast<size_t>(encode(range.lo, a));
    encode(hi, b);
    utf8_range(net, from, std::span(a).first(n), std::span(b).first(n), to);
    if (hi == range.hi) return;
    range.lo = hi + 1;
  }
}

void hex_digits(Network& net, NodeId from, std::string_view digits, NodeId to) {
  for (const char c : digits) net.byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
}

// Four hex digits of a UTF-16 unit that is no surrogate, or of a pair with its \u in between.
void unicode_escape(Network& net, NodeId from, NodeId to) {
  std::array<NodeId, 3> left{};  // plain units: digits still to come
  left[0] = to;
  for (size_t i = 1; i < 3; ++i) hex_digits(net, left[i] = net.node(), kHex, left[i - 1]);
  const NodeId three = net.node(), d = net.node(), pair = net.node(), tail = net.node(), low = net.node();
  hex_digits(net, three, kHex, left[2]);
  hex_digits(net, from, "0123456789abcefABCEF", three);
  hex_digits(net, from, "dD", d);
  hex_digits(net, d, "01234567", left[2]);
  hex_digits(net, d, "89abAB", pair);
  const NodeId pair2 = net.node();
  hex_digits(net, pair, kHex, pair2);
  hex_digits(net, pair2, kHex, tail);
  net.text(tail, "\\u", low);
  const NodeId low2 = net.node();
  hex_digits(net, low, "dD", low2);
  hex_digits(net, low2, "cdefCDEF", left[2]);
}

}  // namespace

CharSet normalized(CharSet set) {
  CharSet split;
  for (const CharRange& r : set) {
    const auto add = [&](uint32_t lo, uint32_t hi) {
      if (lo <= hi) split.push_back({lo, hi});
    };
    add(r.lo, std::min(r.hi, kFirstSurrogate - 1));
    add(std::max(r.lo, kLastSurrogate + 1), std::min(r.hi, kLast));
  }
  std::sort(split.begin(), split.end(), [](const CharRange& a, const CharRange& b) { return a.lo < b.lo; });
  CharSet out;
  for (const CharRange& r : split) {
    if (!out.empty() && r.lo <= out.back().hi + 1) {
      out.back().hi = std::max(out.back().hi, r.hi);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

CharSet complement(const CharSet& set) {
  CharSet out;
  uint32_t next = 0;
  for (const CharRange& r : normalized(set)) {
    if (r.lo > next) out.push_back({next, r.lo - 1});
    next = r.hi + 1;
  }
  if (next <= kLast) out.push_back({next, kLast});
  return normalized(std::move(out));
}

CharSet all_chars() { return complement({}); }

void one_of(Network& net, NodeId from, const CharSet& set, Spelling spelling, NodeId to) {
  for (const CharRange& r : normalized(set)) {
    if (spelling == Spelling::kPlain) {
      utf8(net, from, r, to);
      continue;
    }
    const auto raw = [&](uint32_t lo, uint32_t hi) {
      lo = std::max(lo, r.lo);
      hi = std::min(hi, r.hi);
      if (lo <= hi) utf8(net, from, {lo, hi}, to);
    };
    raw(' ', '"' - 1);
    raw('"' + 1, '\\' - 1);
    raw('\\' + 1, kLast);
    for (uint32_t c = r.lo; c <= std::min<uint32_t>(r.hi, '\\'); ++c) {
      if (c >= ' ' && c != '"' && c != '\\') continue;
      const std::string quoted = json::quote(std::string(1, static_cast<char>(c)));
      net.text(from, std::string_view(quoted).substr(1, quoted.size() - 2), to);
    }
  }
}

void any_json_char(Network& net, NodeId from, NodeId to) {
  one_of(net, from, {{' ', '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, kLast}}, Spelling::kPlain, to);
  const NodeId escape = net.node(), unicode = net.node();
  net.byte(from, '\\', '\\', escape);
  for (const char c : std::string_view("\"\\/bfnrt")) {
    net.byte(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  }
  net.byte(escape, 'u', 'u', unicode);
  unicode_escape(net, unicode, to);
}

}  // namespace dsf::serve::grammar
