#pragma once
// What the files of CudaForward share and nobody else needs.
#include "dsf/gpu/gpu.h"
#include "tools/serve/backends/cuda/launch.h"

namespace dsf::serve::cuda {

// Scores and attention partials are worked off in pieces of rows, so that their workspace has a fixed size.
inline constexpr int64_t kPieceFloats = int64_t{32} << 20;
// Rows of a piece whose selection needs a second round, which keeps the first one's winners.
inline constexpr int64_t kSelectRows = 64;

inline ops::CudaStream raw(const gpu::Stream& s) { return static_cast<ops::CudaStream>(s.handle()); }

}  // namespace dsf::serve::cuda
