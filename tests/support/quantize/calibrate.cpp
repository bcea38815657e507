#include "tests/support/quantize/calibrate.h"

#include <algorithm>

#include "tools/serve/score/score.h"

namespace dsf::quantize {
namespace {

constexpr size_t kDraftEvery = 8;  // tokens

Result<void> run_session(serve::CpuEngine& engine, std::span<const int32_t> ids) {
  DSF_TRY(const serve::SessionId session, engine.open());
  const size_t step = std::min(kDraftEvery, static_cast<size_t>(engine.limits().max_step_tokens));
  for (size_t at = 0; at < ids.size(); at += step) {
    const serve::StepItem item{
        .session = session, .tokens = ids.subspan(at, std::min(step, ids.size() - at)), .want_all_logits = true};
    DSF_OK(engine.step({&item, 1}));
    if (engine.has_drafter() && at + step < ids.size()) DSF_OK(engine.draft(session, ids[at + step]));
  }
  engine.close(session);
  return {};
}

}  // namespace

Result<void> run_text(serve::CpuEngine& engine, std::span<const int32_t> ids) {
  if (ids.empty()) return fail(Code::kUsage, "calibration text", "holds no tokens");
  const auto bos = static_cast<int32_t>(engine.config().bos_token_id);
  const auto longest = static_cast<size_t>(engine.limits().max_model_len);
  for (const std::span<const int32_t> context : serve::contexts_of(ids, bos)) {
    for (size_t at = 0; at < context.size(); at += longest)
      DSF_OK(run_session(engine, context.subspan(at, std::min(longest, context.size() - at))));
  }
  return {};
}

}  // namespace dsf::quantize
