#pragma once
// exl3_gemm: exl3_gemv and exl3_moe for many rows (prefill). The same contract, and the same bits: a row's result does not depend on which of the
// two computed it, nor on the rows beside it.
//
// Device pointers everywhere; borrowed until the stream has run the launches. Launchers allocate nothing and synchronise nothing; calls on one
// stream may share workspace, calls that overlap may not. Errors: kBug for shapes that do not fit. Codebook mul1.
// Source: exl3.md 1, 3, 4, 8.7 proposal C; model.md 6.
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"
#include "tools/serve/backends/ops/exl3_moe/exl3_moe.h"

namespace dsf::serve::ops {

// counters of Exl3GemvArgs are not used; n_rows is any number from 1.
Result<void> exl3_gemm(const gpu::Stream& s, const gpu::Facts& device, const Exl3GemvArgs& a);
// Bytes of workspace for one call (only the shapes in `outputs` are read): four bytes and a little more a row and input of every matrix.
size_t exl3_gemm_workspace_bytes(std::span<const Exl3GemvArgs::Output> outputs, int64_t n_rows);

// counters of Exl3MoeArgs are not used; n_rows is any number from 1. Rows are grouped by expert on the device: no host in the loop. max_bits: the
// widest matrix among the experts and the shared one.
Result<void> exl3_moe_many(const gpu::Stream& s, const gpu::Facts& device, const Exl3MoeArgs& a, int n_experts, int max_bits);
size_t exl3_moe_many_workspace_bytes(int64_t n_rows, int k, int n_experts, int dim, int inter);

}  // namespace dsf::serve::ops
