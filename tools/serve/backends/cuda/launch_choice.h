#pragma once
// Launcher of choose_token. The rules of launch.h hold.
#include "tools/serve/backends/cuda/launch_cache.h"
#include "tools/serve/backends/ops/choose_token/choose_token.h"

namespace dsf::serve::ops {

// workspace: choose_token_workspace(n_rows, vocab) floats. filtered: some row has top_k or top_p on; without it fewer kernels run.
int64_t choose_token_workspace(int64_t n_rows, int64_t vocab);
Result<void> choose_token_cuda(const ChooseTokenArgs& a, bool filtered, float* workspace, CudaStream stream);

}  // namespace dsf::serve::ops
