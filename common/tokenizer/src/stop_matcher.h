#pragma once
// Finds stop strings in a stream of text, holding back no more than may begin one (serving.md 4.4).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsf::tokenizer {

class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool include_match);

  // Appends to out what can be shown. After a match nothing more is.
  void push(std::string_view text, std::string& out);
  // Appends what was held back: it can no longer become a match.
  void flush(std::string& out);
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  // Knuth-Morris-Pratt, one automaton per stop string: linear however the strings repeat themselves.
  struct Automaton {
    std::string stop;
    std::vector<size_t> fallback;
    size_t state = 0;
    bool step(char c);
  };
  std::vector<Automaton> automata_;
  bool include_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace dsf::tokenizer
