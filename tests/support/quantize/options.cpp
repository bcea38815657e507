#include "tests/support/quantize/options.h"

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"

namespace dsf::quantize {
namespace {

Result<void> check(const Plan& plan, const std::string& bits) {
  const auto need = [](const std::string& value, const char* flag, const char* fix) -> Result<void> {
    if (value.empty()) return fail(Code::kUsage, flag, "is required", fix);
    return {};
  };
  DSF_OK(need(plan.native, "--native", "give the folder of the release"));
  DSF_OK(need(plan.output, "--output", "give the folder to make"));
  DSF_OK(need(bits, "--bits", "give a width, or one by role"));
  if (plan.calibration.empty() && !plan.engram.empty())
    return fail(Code::kUsage, "--engram", "is read for calibration alone", "give --calibration FILE, or leave it out");
  if (plan.calibration.empty() && !plan.ldlq)
    return fail(Code::kUsage, "--no-ldlq", "changes nothing without --calibration", "leave it out");
  return {};
}

}  // namespace

Result<std::optional<Plan>> parse_plan(cli::Args args) {
  Plan plan;
  plan.max_shard_bytes = uint64_t{1} << 30;
  std::string bits;
  bool no_ldlq = false;
  int64_t seed = 1;
  cli::CommonFlags common;
  cli::App app(
      {"dsf-quantize",
       "Packs a checkpoint in the release's layout as EXL3, for models of a few million weights.",
       {{"dsf-quantize --native made/native --output made/3bit --bits 3", "every matrix at 3 bits"},
        {"dsf-quantize --native made/native --output made/mixed --bits experts=3,attention=5,4 --calibration ids.txt",
         "error feedback from a text of token ids"},
        {"dsf-quantize --native made/native --output made/plain --bits 3 --calibration ids.txt --no-ldlq",
         "reports the output errors on that text without using it"}}});
  app.group("Folders").option("--native", plan.native, "FP8, FP4 or BF16 checkpoint with config.json", "DIR");
  app.option("--output", plan.output, "the pack; must not exist, or be empty", "DIR");
  app.bytes("--max-shard-bytes", plan.max_shard_bytes, "size of a shard; a larger tensor stands alone");
  std::string roles;
  for (const std::string_view role : kRoles) roles += (roles.empty() ? "" : ", ") + std::string(role);
  app.group("Content").option("--bits", bits, "1 to 8, or ROLE=N,...,N; roles: " + roles, "LIST");
  app.option("--calibration", plan.calibration, "token ids, a JSON array or separated by spaces", "FILE");
  app.option("--engram", plan.engram, "packed rows for the calibration; without it the checkpoint's own tables", "DIR");
  app.flag("--no-ldlq", no_ldlq, "no error feedback");
  app.option("--seed", seed, "of the random signs", 0, INT64_MAX);
  app.common(common, cli::kJson | cli::kJobs);
  DSF_TRY(const std::optional<int> done, app.parse(args));
  if (done) return std::optional<Plan>();
  if (common.quiet) cli::set_log_level(cli::Level::kError);
  plan.ldlq = !no_ldlq;
  plan.seed = static_cast<uint64_t>(seed);
  plan.threads = common.jobs;
  plan.json = common.json;
  DSF_OK(check(plan, bits));
  DSF_TRY(plan.widths, Widths::parse(bits));
  return plan;
}

}  // namespace dsf::quantize
