#include "stop_matcher.h"

#include <algorithm>

namespace dsf::tokenizer {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_match) : include_(include_match) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    std::vector<size_t> fallback(stop.size(), 0);
    for (size_t i = 1, k = 0; i < stop.size(); ++i) {
      while (k > 0 && stop[i] != stop[k]) k = fallback[k - 1];
      if (stop[i] == stop[k]) ++k;
      fallback[i] = k;
    }
    automata_.push_back({std::move(stop), std::move(fallback)});
  }
}

bool StopMatcher::Automaton::step(char c) {
  while (state > 0 && stop[state] != c) state = fallback[state - 1];
  if (stop[state] == c) ++state;
  return state == stop.size();
}

void StopMatcher::push(std::string_view text, std::string& out) {
  if (matched_) return;
  if (automata_.empty()) {
    out += text;
    return;
  }
  for (const char c : text) {
    held_ += c;
    const Automaton* best = nullptr;  // of those that end here, the one that began first
    for (Automaton& a : automata_) {
      if (a.step(c) && (best == nullptr || a.stop.size() > best->stop.size())) best = &a;
    }
    if (best != nullptr) {
      matched_ = best->stop;
      out.append(held_, 0, held_.size() - (include_ ? 0 : best->stop.size()));
      held_.clear();
      return;
    }
  }
  size_t keep = 0;
  for (const Automaton& a : automata_) keep = std::max(keep, a.state);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
}

void StopMatcher::flush(std::string& out) {
  out += held_;
  held_.clear();
  for (Automaton& a : automata_) a.state = 0;
}

}  // namespace dsf::tokenizer
