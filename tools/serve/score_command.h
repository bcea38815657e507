#pragma once
// The subcommand "score": its flags, and raw options to ScoreOptions.
#include "dsf/cli/app.h"
#include "tools/serve/score/score.h"

namespace dsf::serve {

struct RawScore {
  cli::CommonFlags common;
  std::string model, engram, token_ids, text, logits, backend = "cpu";
  bool no_fake_quant = false, restart_at_bos = false;
  int64_t chunk = 512, device = 0;
};

void add_score_flags(cli::Command& command, RawScore& raw);
ScoreOptions score_options(const RawScore& raw);

}  // namespace dsf::serve
