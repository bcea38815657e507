#include "tools/serve/grammar/decimals.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::serve::grammar {
namespace {

constexpr size_t kMaxDigits = 18, kSignificant = 15;

// Magnitudes from `lo` to `hi`, digit by digit: while the digits so far equal those of a bound, that bound limits the
// next digit.
class Range {
 public:
  Range(Network& net, NodeId to, const Decimal& lo, const Decimal* hi, bool open_lo, bool open_hi, bool fraction)
      : net_(net), to_(to), lo_(lo), hi_(hi), open_lo_(open_lo), open_hi_(open_hi), fraction_(fraction) {}

  void add(NodeId from) {
    const size_t most = hi_ != nullptr ? hi_->whole.size() : fraction_ ? kSignificant : kMaxDigits;
    for (size_t n = lo_.whole.size(); n <= std::max(most, lo_.whole.size()); ++n) {
      n_whole_ = n;
      n_fraction_ = kSignificant > n ? kSignificant - n : 0;
      n_fraction_ = std::max({n_fraction_, lo_.fraction.size(), hi_ != nullptr ? hi_->fraction.size() : 0});
      known_.clear();
      net_.skip(from, whole(0, n == lo_.whole.size(), hi_ != nullptr && n == hi_->whole.size()));
    }
  }

 private:
  static char digit_of(const std::string& digits, size_t i) { return i < digits.size() ? digits[i] : '0'; }
  static bool rest_is_zero(const std::string& digits, size_t i) {
    return i >= digits.size() || digits.find_first_not_of('0', i) == std::string::npos;
  }
  // With i digits of the fraction written.
  bool may_end(size_t i, bool at_lo, bool at_hi) const {
    if (at_lo && (!rest_is_zero(lo_.fraction, i) || open_lo_)) return false;
    return !(at_hi && open_hi_ && rest_is_zero(hi_->fraction, i));
  }

  // The node where `i` digits of a part are written; at_lo, at_hi: so far they are the bound's own.
  template <class Next>
  void digits(NodeId from, char first, char lo, char hi, bool at_lo, bool at_hi, Next next) {
    for (char d = std::max(first, at_lo ? lo : '0'); d <= (at_hi ? hi : '9'); ++d) {
      const auto b = static_cast<uint8_t>(d);
      net_.byte(from, b, b, next(at_lo && d == lo, at_hi && d == hi));
    }
  }
  NodeId whole(size_t i, bool at_lo, bool at_hi) {
    const auto [entry, added] = known_.try_emplace({0, i, at_lo, at_hi}, -1);
    if (!added) return entry->second;
    const NodeId here = net_.node();
    entry->second = here;
    if (i == n_whole_) {
      if (may_end(0, at_lo, at_hi)) net_.skip(here, to_);
      if (fraction_ && n_fraction_ > 0) net_.byte(here, '.', '.', fraction(0, at_lo, at_hi));
      return here;
    }
    digits(here, i == 0 && n_whole_ > 1 ? '1' : '0', digit_of(lo_.whole, i),
           hi_ != nullptr ? digit_of(hi_->whole, i) : '9', at_lo, at_hi,
           [&](bool l, bool h) { return whole(i + 1, l, h); });
    return here;
  }
  NodeId fraction(size_t i, bool at_lo, bool at_hi) {
    const auto [entry, added] = known_.try_emplace({1, i, at_lo, at_hi}, -1);
    if (!added) return entry->second;
    const NodeId here = net_.node();
    entry->second = here;
    if (i > 0 && may_end(i, at_lo, at_hi)) net_.skip(here, to_);
    if (i == n_fraction_) return here;
    digits(here, '0', digit_of(lo_.fraction, i), hi_ != nullptr ? digit_of(hi_->fraction, i) : '9', at_lo, at_hi,
           [&](bool l, bool h) { return fraction(i + 1, l, h); });
    return here;
  }

  Network& net_;
  const NodeId to_;
  const Decimal& lo_;
  const Decimal* hi_;
  const bool open_lo_, open_hi_, fraction_;
  size_t n_whole_ = 0, n_fraction_ = 0;
  std::map<std::tuple<int, size_t, bool, bool>, NodeId> known_;
};

void bounded(Network& net, NodeId from, const NumberBounds& b, bool fraction, NodeId to) {
  const Decimal zero;
  const bool below = !b.min || b.min->negative;   // something negative is inside
  const bool above = !b.max || !b.max->negative;  // something not negative is inside
  if (above) {
    const bool from_min = b.min && !b.min->negative;
    Range(net, to, from_min ? *b.min : zero, b.max ? &*b.max : nullptr, from_min && b.open_min, b.open_max, fraction)
        .add(from);
  }
  if (below) {
    const NodeId minus = net.node();
    net.byte(from, '-', '-', minus);
    const bool from_max = b.max && b.max->negative;
    // Never "-0": the nearest to zero is open.
    Range(net, to, from_max ? *b.max : zero, b.min ? &*b.min : nullptr, !from_max || b.open_max, b.open_min, fraction)
        .add(minus);
  }
}

// At most n further digits, or none.
void up_to_digits(Network& net, NodeId from, size_t n, NodeId to) {
  net.skip(from, to);
  for (size_t i = 0; i < n; ++i) {
    const NodeId next = net.node();
    net.byte(from, '0', '9', next);
    net.skip(next, to);
    from = next;
  }
}

}  // namespace

std::optional<Decimal> to_decimal(const json::Value& number) {
  std::string text = json::dump(number);
  Decimal out;
  if (text.starts_with('-')) out.negative = true, text.erase(0, 1);
  int64_t exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    const size_t digits = text[e + 1] == '+' ? e + 2 : e + 1;
    exponent = parse_i64(std::string_view(text).substr(digits)).value_or(1000);
    text.erase(e);
  }
  size_t point = text.find('.');
  if (point == std::string::npos)
    point = text.size();
  else
    text.erase(point, 1);
  if (exponent > 40 || exponent < -40) return std::nullopt;
  int64_t whole = static_cast<int64_t>(point) + exponent;
  if (whole <= 0) text.insert(0, static_cast<size_t>(1 - whole), '0'), whole = 1;
  if (static_cast<size_t>(whole) > text.size()) text.append(static_cast<size_t>(whole) - text.size(), '0');
  out.whole = text.substr(0, static_cast<size_t>(whole));
  out.fraction = text.substr(static_cast<size_t>(whole));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size() - 1));
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.whole == "0" && out.fraction.empty()) out.negative = false;
  if (out.whole.size() > kMaxDigits || out.fraction.size() > kMaxDigits) return std::nullopt;
  return out;
}

bool less(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative;
  const auto smaller = [](const Decimal& x, const Decimal& y) {
    if (x.whole.size() != y.whole.size()) return x.whole.size() < y.whole.size();
    return std::tie(x.whole, x.fraction) <
           std::tie(y.whole, y.fraction);  // no trailing zeros: text order is number order
  };
  return a.negative ? smaller(b, a) : smaller(a, b);
}

void integer(Network& net, NodeId from, const NumberBounds& bounds, NodeId to) {
  bounded(net, from, bounds, false, to);
}

void number(Network& net, NodeId from, const NumberBounds& bounds, NodeId to) {
  if (bounds.min || bounds.max) return bounded(net, from, bounds, true, to);
  const NodeId begin = net.node(), more = net.node(), whole = net.node(), fraction = net.node(), digits = net.node(),
               end = net.node(), exponent = net.node(), sign = net.node(), power = net.node();
  net.byte(from, '-', '-', begin);
  net.skip(from, begin);
  net.byte(begin, '0', '0', whole);
  net.byte(begin, '1', '9', more);
  up_to_digits(net, more, kMaxDigits - 1, whole);
  net.skip(whole, end);
  net.byte(whole, '.', '.', fraction);
  net.byte(fraction, '0', '9', digits);
  up_to_digits(net, digits, 16, end);
  net.skip(end, to);
  for (const uint8_t e : {'e', 'E'}) net.byte(end, e, e, exponent);
  for (const uint8_t s : {'+', '-'}) net.byte(exponent, s, s, sign);
  net.skip(exponent, sign);
  net.byte(sign, '0', '9', power);
  up_to_digits(net, power, 1, to);
}

}  // namespace dsf::serve::grammar
