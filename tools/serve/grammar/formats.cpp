#include "tools/serve/grammar/formats.h"

#include <algorithm>
#include <array>
#include <utility>

namespace dsf::serve::grammar {
namespace {

#define DSF_DATE R"([12]\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31))"
#define DSF_TIME R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"
#define DSF_OCTET R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kFormats{{
    {"date", "^" DSF_DATE "$"},
    {"time", "^" DSF_TIME "$"},
    {"date-time", "^" DSF_DATE "T" DSF_TIME "$"},
    {"uuid", R"(^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$)"},
    {"ipv4", "^" DSF_OCTET R"((\.)" DSF_OCTET "){3}$"},
    {"email",
     R"(^[A-Za-z0-9_+-]{1,32}(\.[A-Za-z0-9_+-]{1,32})?@([A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?\.){1,3}[A-Za-z]{2,12}$)"},
}};

#undef DSF_DATE
#undef DSF_TIME
#undef DSF_OCTET

}  // namespace

std::optional<std::string_view> pattern_of_format(std::string_view format) {
  const auto* found = std::find_if(kFormats.begin(), kFormats.end(), [&](const auto& f) { return f.first == format; });
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

}  // namespace dsf::serve::grammar
