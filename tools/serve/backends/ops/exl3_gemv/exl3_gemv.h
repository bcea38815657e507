#pragma once
// exl3_gemv: y = H(H(x * suh) W) * svh for 1 to 16 rows of EXL3 matrices, several matrices of the same input width in one launch.
//
// Device pointers everywhere; borrowed until the stream has run the launch. Launchers allocate nothing and synchronise nothing; calls on
// one stream may share workspace and counters, calls that overlap may not. Errors: kBug for shapes that do not fit (they are checked at load).
//
// Launches overlap with the work in front of them on the stream: weights and scales may be read before that work has ended, so whatever wrote
// them (upload, repack) must have been waited for. Everything else is ordered as usual.
//
// Promise: a row's bits depend on that row, the matrix and the device's SM count alone, not on the other rows or their number.
// Accuracy: x * suh and its Hadamard in f32, then 15 bits and sign per 128 inputs (a high byte and a residual); weights are the exact affine
// value of the byte sum, which the format rounds to fp16: within 2^-11 of it. Codebook mul1; the others take exl3_general.h.
// Source: exl3.md 1, 3, 4, 8.6-8.8.
#include <cstddef>
#include <cstdint>
#include <span>

#include "dsf/base/result.h"
#include "dsf/gpu/gpu.h"

namespace dsf::serve::ops {

// One matrix, or one rank's slice of it, in the lanes layout of exl3_decode.cuh.
struct Exl3Matrix {
  const void* lanes = nullptr;     // in * out * bits / 8 bytes, 16-byte aligned
  const uint16_t* suh = nullptr;   // [in] fp16
  const uint16_t* svh = nullptr;   // [out] fp16
  int in = 0, out = 0;             // multiples of 128
  int bits = 0;                    // 1..8
};

inline constexpr int kExl3GemvRows = 16;
inline constexpr int kExl3GemvMatrices = 8;

struct Exl3GemvArgs {
  const float* x = nullptr;  // [n_rows, in], row stride x_stride (elements, a multiple of 4), 16-byte aligned
  int x_stride = 0;
  int n_rows = 0;            // 1..16
  struct Output {
    Exl3Matrix w;
    float* y = nullptr;      // [n_rows, out], row stride y_stride (elements, a multiple of 4), 16-byte aligned
    int y_stride = 0;
    int x_offset = 0;        // where this matrix's input begins in a row of x (elements, a multiple of 4)
  };
  std::span<const Output> outputs;  // 1..8, all with the same `in`
  void* workspace = nullptr;        // exl3_gemv_workspace_bytes(); content does not matter
  uint32_t* counters = nullptr;     // [sum of out / 128], zero before the first call; every call leaves them zero
};
Result<void> exl3_gemv(const gpu::Stream& s, const gpu::Facts& device, const Exl3GemvArgs& a);

// Bytes of workspace for one launch (only the shapes in `outputs` are read).
size_t exl3_gemv_workspace_bytes(std::span<const Exl3GemvArgs::Output> outputs, int n_rows, int n_sms);

// trellis (as stored: [in/16, out/16, 16 * bits] uint16) to lanes; both in * out * bits / 8 bytes. A load-time copy, in any number of
// pieces: blocks of 128 columns are independent, so out may be the width of a slice and row_words its stored row stride in 32-bit words;
// and so are blocks of 128 inputs: trellis then points at the first of k_count blocks, which begin at block k_begin of the matrix. 0: all.
Result<void> exl3_repack(const gpu::Stream& s, const void* trellis, void* lanes, int in, int out, int bits, int64_t row_words, int k_begin = 0, int k_count = 0);

}  // namespace dsf::serve::ops
