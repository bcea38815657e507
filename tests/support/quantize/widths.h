#pragma once
// Bits per weight by the role of a matrix. A plain value.
#include <array>
#include <string>
#include <string_view>

#include "dsf/base/result.h"

namespace dsf::quantize {

// What a packed matrix does, from its name: "head", "draft" (everything in mtp.*), "engram", "indexer", "compressor",
// "attention", "shared" (experts), "experts" (routed ones).
inline constexpr std::array<std::string_view, 8> kRoles = {"head",       "draft",     "engram", "indexer",
                                                           "compressor", "attention", "shared", "experts"};

class Widths {
 public:
  // "4", or "experts=3,attention=5,4": a number alone is for the roles that are not named. Errors: kUsage for a width
  // outside 1..8, an unknown role, one given twice, or one left without a width.
  static Result<Widths> parse(std::string_view text);
  int bits(std::string_view matrix) const;  // matrix: a name of model::exl3_matrices

 private:
  std::array<int, kRoles.size()> bits_{};  // by role
};

}  // namespace dsf::quantize
