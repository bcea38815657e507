#pragma once
// The trellis search over pairs of tiles, with the instructions that this machine has. Private to the library. One
// object serves all threads, each with its own scratch.
#include <array>
#include <span>
#include <vector>

#include "dsf/exl3/decode.h"
#include "viterbi.h"

namespace dsf::exl3::detail {

class TileSearch {
 public:
  using Scratch = std::vector<float>;

  TileSearch(Codebook codebook, int bits);
  Scratch make_scratch() const { return Scratch(search_scratch_floats(bits_)); }

  // targets: [2][256] in the codebook's own scale, each tile in the order of tile_position(). states: one closed path
  // per tile, of least squared error among the paths through its boundary node; that node is the one of the best free
  // path over the neighbourhood of the boundary (exl3.md 5.2). A tile's path does not depend on its neighbour.
  void pair(std::span<const float, 512> targets, Scratch& scratch, std::array<TileStates, 2>& states) const;

 private:
  int bits_;
  std::vector<float> values_;  // the codebook in the order in which viterbi_kernel.h walks the states
  SearchPair search_;
};

}  // namespace dsf::exl3::detail
