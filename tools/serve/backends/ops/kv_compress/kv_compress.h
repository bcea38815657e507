#pragma once
// kv_compress: groups of `ratio` consecutive tokens pooled into one latent each (the compressed row before rotation).
//
//   w_t = softmax over the group's tokens of gate[t], per channel     latent = RMSNorm(sum_t w_t * value[t]; norm)
//
// Group g covers the positions g*ratio .. g*ratio + ratio - 1; groups do not overlap and exist only when all their
// tokens do. With ratio 1 there is no gate. Any thread. Source: model.md section 4.3.
#include <cstdint>

namespace dsf::serve::ops {

struct KvCompressArgs {
  const float* value = nullptr;  // ring [ring_rows, dim]: the projection of position p lies at slot p % ring_rows
  const float* gate = nullptr;   // ring like value; nullptr when ratio is 1
  const float* norm = nullptr;   // [dim]
  float* latent = nullptr;       // [n_groups, dim]
  int64_t first_group = 0, n_groups = 0, ratio = 1;
  int64_t ring_rows = 0, dim = 0;
  float eps = 1e-20f;
};
void kv_compress_ref(const KvCompressArgs& a);

}  // namespace dsf::serve::ops
