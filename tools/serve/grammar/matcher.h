#pragma once
// Follows one reply through a Network, byte by byte, and says which tokens may come next.
//
// The set of places where the text so far can stand (node, stack of callers) is one state; states and the steps between
// them are made when first needed and kept, and stacks share their tails, so that the same place costs a table look-up.
// Because a token that stays inside one rule does not see the stack, the tokens allowed inside a node are kept by node:
// inside a string, whatever surrounds it, only the tokens that end the string are looked at again. One matcher per
// reply, one thread at a time; owns its tables, shares network and trie.
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/serve/grammar/network.h"
#include "tools/serve/grammar/token_trie.h"

namespace dsf::serve::grammar {

class Matcher {
 public:
  Matcher(std::shared_ptr<const Network> network, std::shared_ptr<const TokenTrie> trie);

  // False when the text so far and these bytes begin nothing of the language; then nothing has changed.
  bool advance(std::string_view bytes);
  bool may_end() const;    // the text so far is a whole one
  bool may_go_on() const;  // some byte may follow
  // Ids that may come next, ascending; never one that cannot be completed. Empty when nothing may follow. Where a
  // format keeps very many places open at once (".*a.{0,5000}b") only so much work is done, always the same, and ids
  // that would need more are left out.
  void allowed(std::vector<int32_t>& out);

 private:
  using StateId = int32_t;
  using CellId = int32_t;
  // A stack of callers: where to go on, and the rest. A counting cell lies below the cell of a repetition.
  struct Cell {
    NodeId back;
    CellId below;
    int64_t count;
    auto operator<=>(const Cell&) const = default;
  };
  struct Place {
    NodeId node;
    CellId stack;
    auto operator<=>(const Place&) const = default;
  };
  struct State {
    std::vector<Place> places;  // sorted; those from which a byte can be read
    bool ends = false;          // the whole text may end here
    bool leaves = false;        // (with an unknown stack) the first rule may end here
  };
  using Bits = std::vector<uint64_t>;
  struct Inside {  // tokens by node, under an unknown stack
    Bits tokens;
    std::vector<int32_t> exits;  // trie entries where the rule may have ended
  };

  void reset();
  CellId cell(NodeId back, CellId below, int64_t count = 0);
  StateId intern(State state);
  StateId closure(const std::vector<Place>& from);
  void loop(const Place& place, std::vector<Place>& work);
  StateId step(StateId state, uint8_t byte);
  const Inside& inside(NodeId node);
  void sweep(int32_t begin, int32_t end, StateId from, Bits& tokens, std::vector<int32_t>* exits);
  void keep_small();
  CellId copy_stack(const std::vector<Cell>& cells, CellId old, std::unordered_map<CellId, CellId>& known);

  std::shared_ptr<const Network> network_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<Cell> cells_;
  std::map<Cell, CellId> cell_ids_;
  std::vector<State> states_;
  std::map<std::pair<std::vector<Place>, int>, StateId> state_ids_;
  std::vector<StateId> steps_;  // [state][byte class]
  std::unordered_map<NodeId, Inside> inside_;
  std::vector<StateId> by_depth_;
  StateId now_ = 0;
  int64_t work_ = 0;     // places looked at for the present mask
  size_t n_places_ = 0;  // of all states
};

}  // namespace dsf::serve::grammar
