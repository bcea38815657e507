#include "tests/support/checkpoint/options.h"

namespace dsf::make_checkpoint {

Result<std::optional<Plan>> parse_plan(cli::Args args) {
  Plan plan;
  int64_t seed = 1;
  cli::CommonFlags common;
  std::vector<std::string> breakages;
  cli::App app(
      {"dsf-make-checkpoint",
       "Writes the small random checkpoint that this project tests and demonstrates itself with.",
       {{"dsf-make-checkpoint --native made/native --exl3 made/exl3",
         "the release's layout and an EXL3 pack of the same weights"},
        {"dsf-make-checkpoint --native bad --break flip-bit:layers.0.attn.wkv.weight", "one damaged tensor"},
        {"dsf-make-checkpoint --native made/native --keep --break drop-bias-vl", "damages a folder that exists"}}});
  app.group("Folders to write").option("--native", plan.native, "the release's layout", "DIR");
  app.option("--exl3", plan.exl3, "the same weights as an EXL3 pack, without Engram tables", "DIR");
  app.option("--dequantised", plan.dequantised, "the weights of the --exl3 folder as plain F32", "DIR");
  std::string kinds;
  for (const std::string_view name : made_checkpoint::breakage_names())
    kinds += (kinds.empty() ? "" : ", ") + std::string(name);
  app.group("Content").option("--seed", seed, "of every random number", 0, INT64_MAX);
  app.flag("--vision", plan.options.vision, "with the tensors of a vision tower");
  app.list("--break", breakages, "damage --native and --exl3 afterwards: " + kinds, "KIND[:TENSOR]");
  app.flag("--keep", plan.keep, "write nothing new, only damage the folders");
  app.common(common, cli::kJobs);
  DSF_TRY(const std::optional<int> done, app.parse(args));
  if (done) return std::optional<Plan>();
  plan.options.seed = static_cast<uint64_t>(seed);
  plan.options.threads = common.jobs;
  for (const std::string& text : breakages) {
    DSF_TRY(made_checkpoint::Breakage b, made_checkpoint::parse_breakage(text));
    plan.breakages.push_back(std::move(b));
  }
  if (plan.native.empty() && plan.exl3.empty() && plan.dequantised.empty())
    return fail(Code::kUsage, "command line", "no folder to write", "give --native DIR, --exl3 DIR or both");
  if (!plan.dequantised.empty() && plan.exl3.empty())
    return fail(Code::kUsage, "--dequantised", "needs the pack to decode",
                "give --exl3 DIR, with --keep when it exists");
  if (plan.keep && plan.breakages.empty() && plan.dequantised.empty())
    return fail(Code::kUsage, "--keep", "leaves nothing to do", "give --break KIND");
  return plan;
}

}  // namespace dsf::make_checkpoint
