#include "tools/serve/grammar/grammar_filter.h"

#include <algorithm>

#include "dsf/base/check.h"

namespace dsf::serve::grammar {

GrammarFilter::GrammarFilter(tokenizer::Tokenizer tokenizer, Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                             int32_t eos, std::string opening)
    : tokenizer_(std::move(tokenizer)),
      matcher_(std::move(grammar), trie),
      trie_(std::move(trie)),
      eos_(eos),
      opening_(std::move(opening)) {}

bool GrammarFilter::prefill(std::string_view text) {
  if (!text.empty()) opening_.clear();
  return matcher_.advance(text);
}

// Markup tokens spell the opening, so every id counts here but the special ones.
void GrammarFilter::add_opening(std::vector<int32_t>& out) const {
  const auto limit = static_cast<int32_t>(std::min<int64_t>(trie_->n_ids, tokenizer_.id_limit()));
  for (int32_t id = 0; id < limit; ++id) {
    const std::string_view bytes = tokenizer_.bytes(id);
    if (!bytes.empty() && !tokenizer_.is_special(id) && opening_.starts_with(bytes)) out.push_back(id);
  }
}

bool GrammarFilter::allowed(std::vector<int32_t>& out) {
  out.clear();
  if (free_) return false;
  if (!by_opening_) matcher_.allowed(out);
  const auto sorted = static_cast<std::ptrdiff_t>(out.size());
  if (!by_opening_ && matcher_.may_end()) out.push_back(eos_);
  if (!opening_.empty()) add_opening(out);
  if (std::ssize(out) == sorted) return true;
  std::sort(out.begin() + sorted, out.end());
  std::inplace_merge(out.begin(), out.begin() + sorted, out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return true;
}

void GrammarFilter::commit(int32_t id) {
  if (free_ || id == eos_) return;
  const std::string_view bytes = tokenizer_.bytes(id);
  const bool opens = !opening_.empty() && opening_.starts_with(bytes);
  if (opens) {
    // No text of a grammar begins as the opening of a call block does, or the opening is not offered.
    by_opening_ = true;
    opening_.erase(0, bytes.size());
    free_ = opening_.empty();
    return;
  }
  opening_.clear();
  DSF_CHECK(matcher_.advance(bytes), "only allowed tokens are committed");
}

}  // namespace dsf::serve::grammar
