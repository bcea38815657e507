#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex_split.h"

#include <pcre2.h>

#include <array>

namespace dsf::tokenizer {
namespace {
constexpr size_t kMaxPatternBytes = 4096;
// Bounds the work of one match against patterns that backtrack without end.
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kHeapLimitKiB = 20'000;

const pcre2_code* code_of(const std::shared_ptr<void>& code) { return static_cast<const pcre2_code*>(code.get()); }
}  // namespace

Result<RegexSplit> RegexSplit::compile(const std::string& pattern, std::string_view subject) {
  const auto refuse = [&](const std::string& why) {
    return fail(Code::kContent, std::string(subject), "pre-tokenizer pattern is not usable: " + why, {}, "tokenizer_pattern");
  };
  if (pattern.size() > kMaxPatternBytes) return refuse("longer than " + std::to_string(kMaxPatternBytes) + " bytes");
  int error = 0;
  PCRE2_SIZE offset = 0;
  // MATCH_INVALID_UTF: ill-formed bytes match nothing and end up in gaps, instead of making the whole call fail.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> words{};
    pcre2_get_error_message(error, words.data(), words.size());
    return refuse(std::string(reinterpret_cast<const char*>(words.data())) + " at offset " + std::to_string(offset));
  }
  RegexSplit out;
  out.code_ = std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  return out;
}

void RegexSplit::split(std::string_view piece, std::vector<std::string_view>& out) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(code_of(code_), nullptr), &pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context(pcre2_match_context_create(nullptr),
                                                                                          &pcre2_match_context_free);
  if (!match || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  size_t gap = 0, pos = 0;
  while (pos < piece.size()) {
    const int rc = pcre2_match(code_of(code_), reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), pos, PCRE2_NOTEMPTY, match.get(),
                               context.get());
    if (rc < 0) break;
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
    if (span[1] <= span[0] || span[0] < pos) break;  // \K and lookbehind tricks: no progress
    if (span[0] > gap) out.push_back(piece.substr(gap, span[0] - gap));
    out.push_back(piece.substr(span[0], span[1] - span[0]));
    gap = pos = span[1];
  }
  if (gap < piece.size()) out.push_back(piece.substr(gap));
}

}  // namespace dsf::tokenizer
