#pragma once
// SHA256SUMS as coreutils writes and checks it. Source: hub.md 4.5.
#include <map>
#include <string>
#include <string_view>

#include "dsf/base/result.h"

namespace dsf::verify {

// Takes text lines ("<hex>  path"), binary ones ("<hex> *path") and BSD ones ("SHA256 (path) = hex"); anything else,
// unsafe paths and one path with two digests are kContent.
Result<std::map<std::string, std::string>> parse_sums(std::string_view text, std::string_view subject);
// Byte order, two spaces, LF: `sha256sum -c --strict` accepts it.
std::string format_sums(const std::map<std::string, std::string>& sums);

}  // namespace dsf::verify
