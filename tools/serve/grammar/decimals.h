#pragma once
// JSON numbers between bounds, as a language. Pure functions on a Network.
//
// Numbers are kept to what every reader takes without loss of range: integers of at most 18 digits, fractions of at
// most 17, exponents of two digits. Between bounds a number is written without an exponent and with at most 15
// significant digits (unless a bound has more), so that what holds for the decimal holds for the double that a reader
// makes of it.
#include <optional>
#include <string>

#include "dsf/json/json.h"
#include "tools/serve/grammar/network.h"

namespace dsf::serve::grammar {

// A decimal number as digits: [-]whole.fraction, no leading zeros in whole ("0" alone), no trailing zeros in fraction.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;
};

struct NumberBounds {
  std::optional<Decimal> min, max;
  bool open_min = false, open_max = false;  // the bound itself is outside
};

// nullopt when more than 18 digits stand on one side of the point. number: any JSON number.
std::optional<Decimal> to_decimal(const json::Value& number);
bool less(const Decimal& a, const Decimal& b);

void integer(Network& net, NodeId from, const NumberBounds& bounds, NodeId to);
void number(Network& net, NodeId from, const NumberBounds& bounds, NodeId to);

}  // namespace dsf::serve::grammar
