#include "bpe.h"

#include <bit>
#include <climits>
#include <cstddef>
#include <queue>

#include "dsf/base/check.h"

namespace dsf::tokenizer {

void Bpe::reserve(size_t n_tokens, size_t n_merges) {
  whole_.reserve(n_tokens);
  merges_.assign(std::bit_ceil(n_merges * 2 + 8), Merge{});
}

void Bpe::add_token(std::string_view bytes, int32_t id) {
  if (bytes.size() == 1) byte_ids_[static_cast<uint8_t>(bytes[0])] = id;
}

void Bpe::add_merge(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  const uint64_t pair = pair_of(left, right);
  size_t i = slot_of(pair);
  while (merges_[i & (merges_.size() - 1)].pair != ~uint64_t{0} && merges_[i & (merges_.size() - 1)].pair != pair) ++i;
  merges_[i & (merges_.size() - 1)] = {pair, rank, merged};
}

void Bpe::finish(const std::vector<std::pair<std::string_view, int32_t>>& tokens) {
  std::vector<int32_t> ids;
  for (const auto& [bytes, id] : tokens) {
    ids.clear();
    encode(bytes, ids);
    if (ids.size() == 1 && ids[0] == id) whole_.insert(bytes, id);
  }
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (size_t i = slot_of(pair);; ++i) {
    const Merge& m = merges_[i & (merges_.size() - 1)];
    if (m.pair == pair) return &m;
    if (m.pair == ~uint64_t{0}) return nullptr;
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  DSF_CHECK(piece.size() < INT32_MAX, "a text of 2 GiB is given to the tokenizer");
  if (const int32_t id = whole_.find(piece); id >= 0) {
    out.push_back(id);
    return;
  }
  thread_local std::vector<int32_t> symbols;
  symbols.clear();
  for (const char c : piece) {
    if (const int32_t id = byte_ids_[static_cast<uint8_t>(c)]; id >= 0) symbols.push_back(id);
  }
  merge(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::merge(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  return symbols.size() <= kScanLimit ? merge_by_scan(symbols) : merge_by_heap(symbols);
}

void Bpe::merge_by_scan(std::vector<int32_t>& symbols) const {
  constexpr int32_t kNone = INT_MAX;
  thread_local std::vector<std::pair<int32_t, int32_t>> next;  // (rank, merged) of the pair that starts at i
  const auto look_up = [&](size_t i) -> std::pair<int32_t, int32_t> {
    const Merge* m = i + 1 < symbols.size() ? find_merge(symbols[i], symbols[i + 1]) : nullptr;
    return m != nullptr ? std::pair{m->rank, m->merged} : std::pair{kNone, 0};
  };
  next.clear();
  for (size_t i = 0; i < symbols.size(); ++i) next.push_back(look_up(i));
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (next[i].first < next[best].first) best = i;
    }
    if (next[best].first == kNone) return;
    symbols[best] = next[best].second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    next.erase(next.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    next[best] = look_up(best);
    if (best > 0) next[best - 1] = look_up(best - 1);
  }
}

void Bpe::merge_by_heap(std::vector<int32_t>& symbols) const {
  struct Node {
    int32_t id;
    int32_t previous, next;  // -1 at the ends
  };
  struct Candidate {
    int32_t rank, position, left, right, merged;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : position > o.position; }
  };
  const auto n = static_cast<int32_t>(symbols.size());
  std::vector<Node> nodes(symbols.size());
  for (int32_t i = 0; i < n; ++i) nodes[static_cast<size_t>(i)] = {symbols[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
  const auto node = [&](int32_t i) -> Node& { return nodes[static_cast<size_t>(i)]; };

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto consider = [&](int32_t i) {
    if (i < 0 || node(i).next < 0) return;
    const int32_t left = node(i).id, right = node(node(i).next).id;
    if (const Merge* m = find_merge(left, right)) heap.push({m->rank, i, left, right, m->merged});
  };
  for (int32_t i = 0; i + 1 < n; ++i) consider(i);
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Node& a = node(c.position);
    if (a.id != c.left || a.next < 0 || node(a.next).id != c.right) continue;  // one of the two has been merged since
    Node& b = node(a.next);
    a.id = c.merged;
    a.next = b.next;
    b.id = -1;
    if (a.next >= 0) node(a.next).previous = c.position;
    consider(c.position);
    consider(a.previous);
  }
  symbols.clear();
  for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = node(i).next) symbols.push_back(node(i).id);
}

}  // namespace dsf::tokenizer
