#pragma once
// Regular expressions (the common part of ECMAScript and Python) as a language.
//
// Supported: characters, ".", classes with ranges and negation, \d \w \s and their negations, control and code point
// escapes, groups (capturing or not), alternatives, "* + ?" and "{m,n}" (lazy or not: the language is the same), "^" at
// the beginning and "$" at the end of an alternative. Not supported, and refused: everything that looks around or back,
// \b, \p, named groups, flags. Errors: kUsage, what: the part that is not supported or wrong, and where.
#include <string_view>

#include "tools/serve/grammar/chars.h"
#include "tools/serve/grammar/network.h"

namespace dsf::serve::grammar {

enum class Match {
  kWhole,     // the whole text matches, whatever the anchors
  kAnywhere,  // as a search: what "^" and "$" do not hold may be preceded and followed by anything
};
// subject names the pattern in errors.
Result<void> regex(Network& net, NodeId from, std::string_view pattern, Match match, Spelling spelling, NodeId to,
                   const std::string& subject);

}  // namespace dsf::serve::grammar
