#pragma once
// The string formats of JSON Schema that can be promised, as regular expressions. Pure function.
#include <optional>
#include <string_view>

namespace dsf::serve::grammar {

// Every text of the expression is valid under the format, not the other way round: years 1000 to 2999, no 29 February,
// no leap seconds, plain ASCII addresses. nullopt: not supported.
std::optional<std::string_view> pattern_of_format(std::string_view format);

}  // namespace dsf::serve::grammar
