#pragma once
// Sets of characters, and the bytes that spell them: plain UTF-8, or inside a JSON string. Pure functions on a Network.
#include <cstdint>
#include <vector>

#include "tools/serve/grammar/network.h"

namespace dsf::serve::grammar {

struct CharRange {
  uint32_t lo, hi;  // code points, inclusive
};
using CharSet = std::vector<CharRange>;

// Sorted, disjoint, without surrogates.
CharSet normalized(CharSet set);
CharSet complement(const CharSet& set);
CharSet all_chars();

enum class Spelling {
  kPlain,   // UTF-8
  kInJson,  // inside a JSON string: quote, backslash and control characters by their short escape or \u00xx
};
// One character of the set. Every character has exactly one spelling here.
void one_of(Network& net, NodeId from, const CharSet& set, Spelling spelling, NodeId to);
// One character inside a JSON string in any spelling that JSON has; surrogate escapes only in pairs.
void any_json_char(Network& net, NodeId from, NodeId to);

}  // namespace dsf::serve::grammar
