#include "tests/support/quantize/widths.h"

#include <algorithm>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/exl3/matrix.h"

namespace dsf::quantize {
namespace {

constexpr std::string_view kFlag = "--bits";

// What names of a role have in common, in the order in which they are tried.
struct Pattern {
  std::string_view part, role;
};
constexpr Pattern kPatterns[] = {
    {"mtp.", "draft"},      {"engram.", "engram"},         {"indexer.", "indexer"}, {"compressor.", "compressor"},
    {"attn.", "attention"}, {"shared_experts.", "shared"}, {"experts.", "experts"}, {"head", "head"}};

std::string roles_text() {
  std::string text;
  for (const std::string_view role : kRoles) text += (text.empty() ? "" : ", ") + std::string(role);
  return text;
}

size_t role_index(std::string_view role) {
  return static_cast<size_t>(std::find(kRoles.begin(), kRoles.end(), role) - kRoles.begin());
}

Result<int> parse_width(std::string_view text) {
  const auto bits = parse_i64(text);
  if (!bits || *bits < 1 || *bits > exl3::kMaxBits)
    return fail(Code::kUsage, std::string(kFlag), "\"" + std::string(text) + "\" is not a width of 1 to 8 bits");
  return static_cast<int>(*bits);
}

}  // namespace

Result<Widths> Widths::parse(std::string_view text) {
  Widths w;
  int others = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size()), equals = text.substr(at, end - at).find('=');
    const std::string_view item = text.substr(at, end - at);
    const bool named = equals != std::string_view::npos;
    const size_t role = named ? role_index(item.substr(0, equals)) : 0;
    if (named && role == kRoles.size())
      return fail(Code::kUsage, std::string(kFlag), "knows no role \"" + std::string(item.substr(0, equals)) + "\"",
                  "the roles are " + roles_text());
    int& bits = named ? w.bits_[role] : others;
    if (bits != 0)
      return fail(Code::kUsage, std::string(kFlag), "\"" + std::string(item) + "\" gives a width a second time");
    DSF_TRY(bits, parse_width(named ? item.substr(equals + 1) : item));
    at = end + 1;
  }
  for (size_t i = 0; i < kRoles.size(); ++i) {
    if (w.bits_[i] == 0) w.bits_[i] = others;
    if (w.bits_[i] == 0)
      return fail(Code::kUsage, std::string(kFlag), "gives no width for " + std::string(kRoles[i]),
                  "add a number alone for all others");
  }
  return w;
}

int Widths::bits(std::string_view matrix) const {
  for (const Pattern& p : kPatterns)
    if (matrix.find(p.part) != std::string_view::npos) return bits_[role_index(p.role)];
  DSF_CHECK(false, "a packed matrix without a role");
}

}  // namespace dsf::quantize
