#pragma once
// engram_gate: adds one shared value vector to every stream, each with its own gate.
//
//   dot = sum_d x q_weight k_weight key / (rms(x) rms(key) sqrt(D));  gate = sigmoid(sign(dot) sqrt(max(|dot|, 1e-6)));
//   x += gate * value
//
// The means of the two rms are per stream. At dead positions (image tokens) the gate is 0. Any thread; rows are
// independent. Source: engram.md section 5.4.
#include <cstdint>

namespace dsf::serve::ops {

struct EngramGateArgs {
  const float* kv = nullptr;        // [n_rows, S + 1, D]: S keys, then the value
  const float* q_weight = nullptr;  // [S, D]
  const float* k_weight = nullptr;  // [S, D]
  const uint8_t* dead = nullptr;    // [n_rows] non-zero: gate 0; nullptr: none
  float* x = nullptr;               // [n_rows, S, D], updated in place
  int64_t n_rows = 0, n_streams = 4, dim = 0;
  float eps = 1e-20f;
};
void engram_gate_ref(const EngramGateArgs& a);

}  // namespace dsf::serve::ops
