#include "tools/serve/grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <set>

#include "dsf/base/check.h"

namespace dsf::serve::grammar {
namespace {

constexpr int32_t kDead = -1, kNotMade = -2;
constexpr int32_t kEmptyStack = 0, kUnknownStack = 1;
constexpr size_t kMaxStates = 20'000, kMaxPlaces = 2'000'000, kMaxInside = 256;
constexpr int64_t kMaxWork = 500'000;  // of one mask: a tenth of a second or two

size_t at(int32_t id) { return static_cast<size_t>(id); }

void set(std::vector<uint64_t>& bits, int32_t id) { bits[at(id) / 64] |= uint64_t{1} << (at(id) % 64); }

}  // namespace

Matcher::Matcher(std::shared_ptr<const Network> network, std::shared_ptr<const TokenTrie> trie)
    : network_(std::move(network)), trie_(std::move(trie)), by_depth_(trie_->deepest + 1) {
  reset();
  now_ = closure({{network_->start(), kEmptyStack}});
}

void Matcher::reset() {
  cells_ = {{-1, -1, 0}, {-1, -1, 1}};  // empty, unknown
  cell_ids_.clear();
  states_.clear();
  state_ids_.clear();
  steps_.clear();
  n_places_ = 0;
}

Matcher::CellId Matcher::cell(NodeId back, CellId below, int64_t count) {
  const Cell wanted{back, below, count};
  const auto [entry, added] = cell_ids_.try_emplace(wanted, static_cast<CellId>(cells_.size()));
  if (added) cells_.push_back(wanted);
  return entry->second;
}

Matcher::StateId Matcher::intern(State state) {
  if (state.places.empty() && !state.ends && !state.leaves) return kDead;
  const int flags = (state.ends ? 1 : 0) | (state.leaves ? 2 : 0);
  const auto [entry, added] = state_ids_.try_emplace({state.places, flags}, static_cast<StateId>(states_.size()));
  if (added) {
    n_places_ += state.places.size();
    states_.push_back(std::move(state));
    steps_.resize(steps_.size() + at(network_->n_classes()), kNotMade);
  }
  return entry->second;
}

// Everything that can be reached without reading a byte.
Matcher::StateId Matcher::closure(const std::vector<Place>& from) {
  State out;
  std::set<Place> seen;
  std::vector<Place> work = from;
  while (!work.empty()) {
    const Place place = work.back();
    work.pop_back();
    ++work_;
    if (!seen.insert(place).second) continue;
    const Node& node = network_->nodes()[at(place.node)];
    if (!node.bytes.empty()) out.places.push_back(place);
    for (const NodeId to : node.skips) work.push_back({to, place.stack});
    for (const CallEdge& call : node.calls) work.push_back({call.rule, cell(call.to, place.stack)});
    if (node.repetition >= 0) loop(place, work);
    if (!node.finishes) continue;
    if (place.stack == kEmptyStack) {
      out.ends = true;
    } else if (place.stack == kUnknownStack) {
      out.leaves = true;
    } else {
      const Cell& top = cells_[at(place.stack)];
      work.push_back({top.back, top.below});
    }
  }
  std::sort(out.places.begin(), out.places.end());
  return intern(std::move(out));
}

// A repetition is entered with the caller's stack and puts a counting cell on it (marked by back == -2 - node, which no
// node is); from then on it meets itself with that cell on top.
void Matcher::loop(const Place& place, std::vector<Place>& work) {
  const Repetition& r = network_->repetitions()[at(network_->nodes()[at(place.node)].repetition)];
  const NodeId mark = -2 - place.node;
  const bool counting = place.stack > kUnknownStack && cells_[at(place.stack)].back == mark;
  const int64_t count = counting ? cells_[at(place.stack)].count : 0;
  const CellId outer = counting ? cells_[at(place.stack)].below : place.stack;
  if (count >= r.min) work.push_back({r.to, outer});
  if (r.max >= 0 && count >= r.max) return;
  const int64_t next = r.max < 0 ? std::min(count + 1, r.min) : count + 1;
  work.push_back({r.rule, cell(place.node, cell(mark, outer, next))});
}

Matcher::StateId Matcher::step(StateId state, uint8_t byte) {
  const size_t slot = at(state) * at(network_->n_classes()) + network_->byte_class()[byte];
  if (steps_[slot] != kNotMade) return steps_[slot];
  std::vector<Place> next;
  for (const Place& place : states_[at(state)].places) {
    for (const ByteEdge& e : network_->nodes()[at(place.node)].bytes) {
      if (e.lo <= byte && byte <= e.hi) next.push_back({e.to, place.stack});
    }
  }
  const StateId made = closure(next);
  steps_[slot] = made;
  return made;
}

bool Matcher::advance(std::string_view bytes) {
  keep_small();
  StateId state = now_;
  for (const char c : bytes) {
    state = step(state, static_cast<uint8_t>(c));
    if (state == kDead) return false;
  }
  now_ = state;
  return true;
}

bool Matcher::may_end() const { return states_[at(now_)].ends; }
bool Matcher::may_go_on() const { return !states_[at(now_)].places.empty(); }

// Adds the tokens of trie entries begin .. end - 1, whose parent stands at `from`. With exits, entries where the first
// rule may have ended are noted; what follows them depends on the stack and is not looked at through them.
void Matcher::sweep(int32_t begin, int32_t end, StateId from, Bits& tokens, std::vector<int32_t>* exits) {
  const TokenTrie& trie = *trie_;
  const size_t n_classes = at(network_->n_classes());
  const uint8_t* classes = network_->byte_class().data();
  if (begin < end) by_depth_[trie.depth[at(begin)] - 1u] = from;
  for (int32_t i = begin; i < end;) {
    const size_t depth = trie.depth[at(i)];
    const StateId parent = by_depth_[depth - 1];
    StateId here = steps_[at(parent) * n_classes + classes[trie.byte[at(i)]]];
    if (here == kNotMade) here = work_ < kMaxWork ? step(parent, trie.byte[at(i)]) : kDead;
    if (here == kDead) {
      i = trie.end[at(i)];
      continue;
    }
    by_depth_[depth] = here;
    if (trie.token[at(i)] >= 0) set(tokens, trie.token[at(i)]);
    if (exits != nullptr && states_[at(here)].leaves) exits->push_back(i);
    ++i;
  }
}

const Matcher::Inside& Matcher::inside(NodeId node) {
  if (inside_.size() >= kMaxInside && !inside_.contains(node)) inside_.clear();
  const auto [entry, added] = inside_.try_emplace(node);
  Inside& out = entry->second;
  if (!added) return out;
  out.tokens.assign((at(static_cast<int32_t>(trie_->n_ids)) + 63) / 64, 0);
  sweep(1, trie_->end[0], closure({{node, kUnknownStack}}), out.tokens, &out.exits);
  return out;
}

void Matcher::allowed(std::vector<int32_t>& out) {
  out.clear();
  keep_small();
  work_ = 0;
  const std::vector<Place> places = states_[at(now_)].places;
  Bits tokens;
  if (places.size() == 1) {
    const Inside& known = inside(places[0].node);
    tokens = known.tokens;
    const CellId stack = places[0].stack;
    if (stack != kEmptyStack) {
      const Cell top = cells_[at(stack)];
      const StateId behind = closure({{top.back, top.below}});
      for (const int32_t i : known.exits) sweep(i + 1, trie_->end[at(i)], behind, tokens, nullptr);
    }
  } else {
    tokens.assign((at(static_cast<int32_t>(trie_->n_ids)) + 63) / 64, 0);
    sweep(1, trie_->end[0], now_, tokens, nullptr);
  }
  for (size_t w = 0; w < tokens.size(); ++w) {
    for (uint64_t bits = tokens[w]; bits != 0; bits &= bits - 1)
      out.push_back(static_cast<int32_t>(w * 64) + std::countr_zero(bits));
  }
}

// Long replies through counted or deep places meet ever new states; now and then everything but the present one is
// forgotten.
void Matcher::keep_small() {
  if (states_.size() < kMaxStates && n_places_ < kMaxPlaces) return;
  const State kept = states_[at(now_)];
  const std::vector<Cell> old = cells_;
  reset();
  std::unordered_map<CellId, CellId> known;
  State state{{}, kept.ends, kept.leaves};
  for (const Place& place : kept.places) state.places.push_back({place.node, copy_stack(old, place.stack, known)});
  std::sort(state.places.begin(), state.places.end());
  now_ = intern(std::move(state));
}

Matcher::CellId Matcher::copy_stack(const std::vector<Cell>& cells, CellId old,
                                    std::unordered_map<CellId, CellId>& known) {
  std::vector<CellId> chain;
  CellId below = old;
  for (; below > kUnknownStack && !known.contains(below); below = cells[at(below)].below) chain.push_back(below);
  CellId copy = below > kUnknownStack ? known.at(below) : below;
  for (auto c = chain.rbegin(); c != chain.rend(); ++c) {
    copy = cell(cells[at(*c)].back, copy, cells[at(*c)].count);
    known[*c] = copy;
  }
  return copy;
}

}  // namespace dsf::serve::grammar
