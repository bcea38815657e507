#pragma once
// Stop strings over the whole text of a raw completion. (Chat replies use the output parser, which knows where content
// begins and ends.) However the text is cut, what is emitted in total is the same. One object per reply.
#include <string>
#include <string_view>
#include <vector>

namespace dsf::serve {

class StopMatcher {
 public:
  // stops: none empty. include: a match stays in the text.
  StopMatcher(std::vector<std::string> stops, bool include) : stops_(std::move(stops)), include_(include) {}

  // Text that can no longer be part of a match. Nothing after a match.
  std::string push(std::string_view text);
  std::string finish();  // end of the reply: what was held back
  const std::string* matched() const { return matched_; }

 private:
  size_t held_back() const;

  std::vector<std::string> stops_;
  bool include_;
  std::string held_;
  const std::string* matched_ = nullptr;
};

}  // namespace dsf::serve
