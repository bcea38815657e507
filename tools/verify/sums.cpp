#include "tools/verify/sums.h"

#include <algorithm>
#include <optional>

#include "dsf/codec/sha256.h"
#include "dsf/manifest/path.h"

namespace dsf::verify {
namespace {

struct Line {
  std::string path, digest;
};

std::optional<Line> parse_line(std::string_view line) {
  constexpr std::string_view kBsd = "SHA256 (";
  std::string digest;
  std::string_view path;
  if (line.starts_with(kBsd)) {
    const size_t close = line.rfind(") = ");
    if (close == std::string_view::npos || close < kBsd.size()) return std::nullopt;
    path = line.substr(kBsd.size(), close - kBsd.size());
    digest = line.substr(close + 4);
  } else {
    if (line.size() < 67 || line[64] != ' ' || (line[65] != ' ' && line[65] != '*')) return std::nullopt;
    digest = line.substr(0, 64);
    path = line.substr(66);
  }
  const auto parsed = codec::Digest::from_hex(digest);
  if (!parsed) return std::nullopt;
  return Line{std::string(path), parsed->hex()};
}

}  // namespace

Result<std::map<std::string, std::string>> parse_sums(std::string_view text, std::string_view subject) {
  std::map<std::string, std::string> out;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    const auto bad = [&](const std::string& what) {
      return fail(Code::kContent, std::string(subject), "line " + std::to_string(number) + " " + what,
                  "write it with sha256sum or dsf-verify --write-sums", "sums");
    };
    auto parsed = parse_line(line);
    if (!parsed) return bad("is not a SHA-256 line");
    if (parsed->path.starts_with("./")) parsed->path.erase(0, 2);
    if (const std::string why = manifest::path_problem(parsed->path); !why.empty())
      return bad("names a path that is not allowed: " + why);
    const auto [it, fresh] = out.emplace(parsed->path, parsed->digest);
    if (!fresh && it->second != parsed->digest) return bad("gives a second digest for one path");
  }
  return out;
}

std::string format_sums(const std::map<std::string, std::string>& sums) {
  std::string out;
  for (const auto& [path, digest] : sums) out += digest + "  " + path + "\n";
  return out;
}

}  // namespace dsf::verify
