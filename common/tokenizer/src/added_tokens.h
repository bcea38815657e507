#pragma once
// Finds added tokens in text: leftmost, the longest at that place (serving.md 1.2 steps 1 and 3).
#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace dsf::tokenizer {

class AddedTokenMatcher {
 public:
  void add(std::string_view content, int32_t id);

  struct Match {
    size_t begin, size;
    int32_t id;  // -1: none; begin is then text.size()
  };
  // The first match at or after from.
  Match find(std::string_view text, size_t from) const;

 private:
  // A byte trie; node 0 is the root.
  struct Node {
    std::map<char, size_t> children;
    int32_t id = -1;
  };
  std::vector<Node> nodes_{1};
  std::array<bool, 256> starts_{};  // bytes that begin some token: most text is passed over by this alone
};

}  // namespace dsf::tokenizer
