#include "tools/verify/options.h"

#include <algorithm>
#include <thread>

namespace dsf::verify {

cli::ToolInfo tool_info() {
  return {"dsf-verify",
          "Proves that a folder holds the bytes it should: digests on all cores, safetensors structure, index agreement.",
          {{"dsf-verify model --pin manifests/deepseek-v4.1-flash.json --report verify.json", "every byte against a pin"},
           {"dsf-verify model", "against SHA256SUMS or the fetch record in the folder, else structure alone"},
           {"dsf-verify model --level quick", "seconds instead of minutes: no digests of large files"}}};
}

void describe(cli::App& app, RawOptions& raw) {
  app.group("What");
  app.positional("DIR", raw.dir, "folder to verify (default: the current one)", false);
  app.choice("--level", raw.level, {"stat", "quick", "full"}, "how deep: sizes, structure, or every byte (default full)");
  app.option("--sums", raw.sums, "expect the digests of this SHA256SUMS file", "FILE");
  app.group("Judgement");
  app.flag("--partial", raw.partial, "shards that nothing expects here may be missing");
  app.flag("--no-extra", raw.no_extra, "files that the pin does not name are errors");
  app.flag("--strict", raw.strict, "tensors that the index does not name are errors");
  app.flag("--allow-open", raw.allow_open, "accept a pin that leaves digests open; they are not checked");
  app.flag("--warnings-as-errors", raw.warnings_as_errors, "exit 10 when there are only warnings");
  app.group("Results");
  app.option("--report", raw.report, "write the record here", "FILE");
  app.option("--write-sums", raw.write_sums, "write the digests found as SHA256SUMS (level full)", "FILE");
  app.common(raw.common, cli::kJson | cli::kJobs | cli::kPin);
}

Result<Plan> make_plan(const RawOptions& raw) {
  Plan p;
  p.dir = raw.dir;
  p.level = raw.level == "stat" ? Level::kStat : raw.level == "quick" ? Level::kQuick : Level::kFull;
  if (!raw.common.pin.empty() && !raw.sums.empty()) return fail(Code::kUsage, "--sums", "cannot be combined with --pin", "give one of them", "usage");
  if (!raw.write_sums.empty() && p.level != Level::kFull) return fail(Code::kUsage, "--write-sums", "needs every digest", "use --level full", "usage");
  p.pin = raw.common.pin;
  p.sums = raw.sums;
  p.report = raw.report;
  p.write_sums = raw.write_sums;
  p.jobs = raw.common.jobs > 0 ? raw.common.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  p.no_extra = raw.no_extra;
  p.partial = raw.partial;
  p.strict = raw.strict;
  p.warnings_as_errors = raw.warnings_as_errors;
  p.allow_open = raw.allow_open;
  p.json = raw.common.json;
  p.quiet = raw.common.quiet;
  return p;
}

const char* level_name(Level level) { return level == Level::kStat ? "stat" : level == Level::kQuick ? "quick" : "full"; }

}  // namespace dsf::verify
