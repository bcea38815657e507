#include "tools/preflight/options.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "tools/preflight/checks.h"

namespace dsf::preflight {

cli::ToolInfo tool_info() {
  return {"dsf-preflight",
          "Says whether this node can serve: checkpoint, routers, tokens, Engram packs, memory, disk.",
          {{"dsf-preflight --model model --engram engram --world-size 2 --rank 0", "everything this node needs"},
           {"dsf-preflight --model model --engram engram --images off", "text only: image-router biases may be absent"},
           {"dsf-preflight --model model --only routers.attach --json", "one check, for a script"}}};
}

void describe(cli::App& app, RawOptions& raw) {
  app.group("What");
  app.option("--model", raw.model, "checkpoint folder: native release or EXL3 pack", "DIR");
  app.option("--engram", raw.engram, "folder of the packed Engram files (default: the tables in the model folder)", "DIR");
  app.option("--rank", raw.rank, "this node's rank", 0, 4095);
  app.option("--world-size", raw.world_size, "number of ranks", 1, 4096);
  app.option("--bias-vl", raw.bias_vl, "folder with the image-router biases that a pack has dropped", "DIR");
  app.choice("--images", raw.images, {"on", "off"}, "off: text only, image-router biases may be absent");
  app.group("Memory plan");
  app.choice("--backend", raw.backend, {"auto", "cpu", "cuda"}, "whose memory plan (default: cuda where a device is)");
  app.option("--max-model-len", raw.max_model_len, "positions of one session; 0 is the model's own limit", 0, int64_t{1} << 32);
  app.option("--max-sessions", raw.max_sessions, "sessions open at once", 1, 1 << 20);
  app.option("--max-step-tokens", raw.max_step_tokens, "tokens of one step", 1, 1 << 24);
  app.bytes("--memory", raw.memory, "memory to plan for (default: MemAvailable of this machine)");
  app.group("Which checks");
  app.list("--only", raw.only, "run only this check; may be repeated", "ID");
  app.list("--skip", raw.skip, "leave this check out; may be repeated", "ID");
  app.flag("--deep", raw.deep, "read every packed row, not a sample");
  app.flag("--list-checks", raw.list_checks, "print the ids and end");
  app.flag("--warnings-as-errors", raw.warnings_as_errors, "exit 10 when there are only warnings");
  app.option("--report", raw.report, "write the record here", "FILE");
  app.common(raw.common, cli::kJson);
}

namespace {
bool device_present() {
  std::error_code ec;
  return std::filesystem::exists("/dev/nvidia0", ec) || std::filesystem::exists("/dev/nvhost-gpu", ec);
}
Result<void> known(const std::vector<std::string>& ids) {
  for (const std::string& id : ids)
    if (std::none_of(all_checks().begin(), all_checks().end(), [&](const Check& c) { return id == c.id; }))
      return fail(Code::kUsage, id, "is not a check", "see dsf-preflight --list-checks", "usage");
  return {};
}
}  // namespace

Result<Plan> make_plan(const RawOptions& raw) {
  Plan p;
  if (raw.model.empty()) return fail(Code::kUsage, "--model", "is required", "pass the checkpoint folder", "usage");
  if (raw.rank >= raw.world_size)
    return fail(Code::kUsage, "--rank", std::to_string(raw.rank) + " is not a rank of " + std::to_string(raw.world_size), "give 0 to " + std::to_string(raw.world_size - 1), "usage");
  DSF_OK(known(raw.only));
  DSF_OK(known(raw.skip));
  p.model = raw.model;
  p.engram = raw.engram;
  p.bias_vl = raw.bias_vl;
  p.rank = static_cast<int>(raw.rank);
  p.world_size = static_cast<int>(raw.world_size);
  p.images = raw.images == "on";
  p.deep = raw.deep;
  const bool cuda = raw.backend == "cuda" || (raw.backend == "auto" && device_present());
  p.memory = {.residence = cuda ? model::Residence::kStored : model::Residence::kExpanded,
              .rank = p.rank,
              .world_size = p.world_size,
              .max_model_len = raw.max_model_len,
              .max_sessions = raw.max_sessions,
              .max_step_tokens = raw.max_step_tokens};
  p.memory_budget = raw.memory;
  // Below this a unified-memory node stops answering instead of failing an allocation.
  p.memory_margin = cuda ? 4 * kGiB : 256 * kMiB;
  p.only = raw.only;
  p.skip = raw.skip;
  p.warnings_as_errors = raw.warnings_as_errors;
  p.json = raw.common.json;
  p.quiet = raw.common.quiet;
  p.report = raw.report;
  return p;
}

}  // namespace dsf::preflight
