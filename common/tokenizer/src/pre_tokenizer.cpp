#include "pre_tokenizer.h"

#include <algorithm>

#include "regex_split.h"

namespace dsf::tokenizer {

const std::string_view kReleasePatterns[3] = {
    R"(\p{N}{1,3})",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(const std::vector<std::string>& patterns, std::string_view subject, Engine engine) {
  PreTokenizer out;
  out.release_ = engine == Engine::kAutomatic && std::ranges::equal(patterns, kReleasePatterns);
  if (out.release_) return out;
  for (const std::string& pattern : patterns) {
    DSF_TRY(RegexSplit regex, RegexSplit::compile(pattern, subject));
    out.regexes_.push_back(std::move(regex));
  }
  return out;
}

void PreTokenizer::split(std::string_view text, const PieceSink& sink) const {
  if (text.empty()) return;
  if (release_) return split_release(text, sink);
  std::vector<std::string_view> current{text}, next;
  for (const RegexSplit& regex : regexes_) {
    next.clear();
    for (const std::string_view piece : current) regex.split(piece, next);
    std::swap(current, next);
  }
  for (const std::string_view piece : current) sink(piece);
}

}  // namespace dsf::tokenizer
