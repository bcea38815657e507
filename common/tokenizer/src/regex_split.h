#pragma once
// One "Isolated" split by a regular expression, through PCRE2.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::tokenizer {

class RegexSplit {
 public:
  // Errors: kContent when the pattern does not compile or is longer than 4 KiB.
  static Result<RegexSplit> compile(const std::string& pattern, std::string_view subject);

  // Appends matches and the gaps between them. A pattern that exceeds PCRE2's match limit leaves the rest of piece as one gap.
  void split(std::string_view piece, std::vector<std::string_view>& out) const;

 private:
  std::shared_ptr<void> code_;  // pcre2_code
};

}  // namespace dsf::tokenizer
