#pragma once
// exl3_reconstruct: the effective weights W [out, in] of an EXL3 matrix in f32, for every width and codebook: the general path (mcg and 3INST
// through an ordinary product) and the first step of long prefills.
//
// Same manners as exl3_gemv.h. The inner weights are the format's own fp16 values bit for bit; the two Hadamard sums are in f32.
// Source: exl3.md 1.1, 3, 4.
#include "tools/serve/backends/ops/exl3_gemv/exl3_gemv.h"

namespace dsf::serve::ops {

enum class Exl3Codebook { k3Inst, kMcg, kMul1 };

// weight: [out, in] f32, row-major, 16-byte aligned.
Result<void> exl3_reconstruct(const gpu::Stream& s, const Exl3Matrix& m, Exl3Codebook codebook, float* weight);

}  // namespace dsf::serve::ops
