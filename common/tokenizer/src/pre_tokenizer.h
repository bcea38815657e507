#pragma once
// Splits text into the pieces that BPE works on (serving.md 1.2 step 4).
//
// The release's three regexes have a hand-written scanner: one pass, no backtracking, and the same Unicode version everywhere. Any other
// sequence of regexes runs through PCRE2, slower and with the Unicode version of the installed library. Tests hold one against the other.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::tokenizer {

// The release's patterns, in order.
extern const std::string_view kReleasePatterns[3];

using PieceSink = std::function<void(std::string_view)>;

class RegexSplit;

class PreTokenizer {
 public:
  enum class Engine { kAutomatic, kRegex };
  // patterns: each splits the pieces of the one before ("Isolated": matches and gaps are both kept). Errors: kContent.
  static Result<PreTokenizer> create(const std::vector<std::string>& patterns, std::string_view subject,
                                     Engine engine = Engine::kAutomatic);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls sink with each piece in order; together they are text. Ill-formed bytes count as characters of no class.
  void split(std::string_view text, const PieceSink& sink) const;

 private:
  PreTokenizer();
  bool release_ = false;
  std::vector<RegexSplit> regexes_;
};

// The scanner for kReleasePatterns.
void split_release(std::string_view text, const PieceSink& sink);

}  // namespace dsf::tokenizer
