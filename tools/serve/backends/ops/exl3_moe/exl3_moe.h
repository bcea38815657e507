#pragma once
// exl3_moe: the chosen experts of 1 to 8 rows and the shared expert, EXL3 weights, two launches, no host in the loop.
//
//   g = lin(x; w1), u = lin(x; w3);  a = silu(min(g, limit)) * clamp(u, -limit, limit) * weight;  y += lin(a; w2)
//
// lin is exl3_gemv's product, in f32 between the matrices; the sum runs over experts in ascending order, the shared one last (weight 1).
// Each distinct expert is decoded once for all rows that chose it. Device pointers; borrowed until the stream has run the launch. Overlap with
// earlier work, accuracy and promise as in exl3_gemv.h: a row's bits do not depend on the other rows, on their experts or on their number.
// Source: model.md 6, exl3.md 8.7.
#include <cstddef>
#include <cstdint>

#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"

namespace dsf::serve::ops {

struct Exl3Expert {
  Exl3Matrix w1, w3, w2;  // [dim -> inter], [dim -> inter], [inter -> dim]; widths may differ between experts and matrices
};

inline constexpr int kExl3MoeRows = 8;
inline constexpr int kExl3MoeChoices = 8;  // experts a row may choose

struct Exl3MoeArgs {
  const float* x = nullptr;             // [n_rows, dim]
  const int32_t* ids = nullptr;         // [n_rows, k], distinct within a row, 0 <= id < number of experts
  const float* weights = nullptr;       // [n_rows, k]
  const Exl3Expert* experts = nullptr;  // on the device, indexed by id
  const Exl3Expert* shared = nullptr;   // on the device: one, or nullptr
  float* y = nullptr;                   // [n_rows, dim]
  int n_rows = 0, k = 0, dim = 0, inter = 0;
  float limit = 10;                     // swiglu_limit
  void* workspace = nullptr;            // exl3_moe_workspace_bytes()
  uint32_t* counters = nullptr;         // [exl3_moe_counters()], zero before the first call; every call leaves them zero
};
Result<void> exl3_moe(const gpu::Stream& s, const gpu::Facts& device, const Exl3MoeArgs& a);
size_t exl3_moe_workspace_bytes(int n_rows, int k, int dim, int inter);
size_t exl3_moe_counters(int n_rows, int k, int dim, int inter);

}  // namespace dsf::serve::ops
