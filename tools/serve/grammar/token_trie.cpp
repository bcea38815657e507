#include "tools/serve/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

namespace dsf::serve::grammar {

TokenTrie TokenTrie::make(const tokenizer::Tokenizer& tokenizer, int64_t vocab_size) {
  TokenTrie out;
  out.n_ids = vocab_size;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < std::min<int64_t>(vocab_size, tokenizer.id_limit()); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (!bytes.empty() && bytes.size() <= UINT16_MAX && !tokenizer.is_added(id)) ids.push_back(id);
  }
  // In the order of their bytes a token follows its beginnings: preorder.
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const std::string_view x = tokenizer.bytes(a), y = tokenizer.bytes(b);
    return x != y ? x < y : a < b;
  });
  const auto add = [&](uint8_t byte, size_t depth) {
    out.byte.push_back(byte);
    out.depth.push_back(static_cast<uint16_t>(depth));
    out.end.push_back(0);
    out.token.push_back(-1);
  };
  add(0, 0);
  std::vector<size_t> path{0};  // entries from the root to the last token
  std::string_view last;
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth + 1) {
      out.end[path.back()] = static_cast<int32_t>(out.byte.size());
      path.pop_back();
    }
  };
  for (const int32_t id : ids) {
    const std::string_view bytes = tokenizer.bytes(id);
    const auto common = std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin();
    // The same bytes again: an entry of its own.
    const auto shared = static_cast<size_t>(common);
    close_to(path.size() > 1 && bytes == last ? shared - 1 : shared);
    for (size_t d = path.size(); d <= bytes.size(); ++d) {
      path.push_back(out.byte.size());
      add(static_cast<uint8_t>(bytes[d - 1]), d);
    }
    out.token[path.back()] = id;
    out.deepest = std::max(out.deepest, bytes.size());
    last = bytes;
  }
  close_to(0);
  out.end[0] = static_cast<int32_t>(out.byte.size());
  return out;
}

}  // namespace dsf::serve::grammar
