#include "tools/verify/options.h"

#include <algorithm>
#include <thread>

namespace dsf::verify {

cli::ToolInfo tool_info() {
  return {
      "dsf-verify",
      "Proves that a folder holds the bytes it should: digests on all cores, safetensors structure, index agreement.",
      {{"dsf-verify model --pin manifests/deepseek-v4.1-flash.json --report verify.json", "every byte against a pin"},
       {"dsf-verify model", "against SHA256SUMS or the fetch record in the folder, else structure alone"},
       {"dsf-verify model --level quick", "seconds instead of minutes: no digests of large files"},
       {"dsf-verify repair model --pin pin.json",
        "fetch again what is damaged, and only that where pieces are known"}}};
}

void describe(cli::App& app, RawOptions& raw) {
  app.group("What");
  app.positional("DIR", raw.dir, "folder to verify (default: the current one)", false);
  app.choice("--level", raw.level, {"stat", "quick", "full", "hub"},
             "sizes, structure, every byte (default), or also against the live Hub");
  app.option("--sums", raw.sums, "expect the digests of this SHA256SUMS file", "FILE");
  app.flag("--from-hf", raw.from_hf, "expect what the hf client noted beside the files");
  app.group("Judgement");
  app.flag("--partial", raw.partial, "shards that nothing expects here may be missing");
  app.flag("--no-extra", raw.no_extra, "files that the pin does not name are errors");
  app.flag("--strict", raw.strict, "tensors that the index does not name are errors");
  app.flag("--allow-open", raw.allow_open, "accept a pin that leaves digests open; they are not checked");
  app.flag("--warnings-as-errors", raw.warnings_as_errors, "exit 10 when there are only warnings");
  app.group("Results");
  app.option("--report", raw.report, "write the record here", "FILE");
  app.option("--write-sums", raw.write_sums, "write the digests found as SHA256SUMS (level full)", "FILE");
  app.option("--in-toto", raw.in_toto, "write an unsigned in-toto statement of the digests found (level full)", "FILE");
  app.option("--write-pieces", raw.write_pieces,
             "write the pin again with digests of 64 MiB pieces, for repair (level full)", "FILE");
  app.group("Hub");
  app.option("--token-file", raw.token_file, "file with the access token; default HF_TOKEN and the client's own file",
             "FILE");
  app.flag("--no-token", raw.no_token, "send no token");
  app.common(raw.common, cli::kJson | cli::kJobs | cli::kPin);
}

void describe_repair(cli::Command& c, RawOptions& raw) {
  c.positional("DIR", raw.dir, "folder to repair");
  c.flag("--allow-open", raw.allow_open, "accept a pin that leaves digests open");
  c.option("--report", raw.report, "write the record of the verification afterwards here", "FILE");
  c.option("--token-file", raw.token_file, "file with the access token; default HF_TOKEN and the client's own file",
           "FILE");
  c.flag("--no-token", raw.no_token, "send no token");
  c.common(raw.common, cli::kJson | cli::kJobs | cli::kPin);
}

Result<Plan> make_plan(const RawOptions& raw) {
  Plan p;
  p.dir = raw.dir;
  p.level = raw.level == "stat"    ? Level::kStat
            : raw.level == "quick" ? Level::kQuick
            : raw.level == "hub"   ? Level::kHub
                                   : Level::kFull;
  if (!raw.common.pin.empty() && !raw.sums.empty())
    return fail(Code::kUsage, "--sums", "cannot be combined with --pin", "give one of them", "usage");
  for (const auto& [name, value] :
       {std::pair{"--write-sums", &raw.write_sums}, {"--in-toto", &raw.in_toto}, {"--write-pieces", &raw.write_pieces}})
    if (!value->empty() && p.level < Level::kFull)
      return fail(Code::kUsage, name, "needs every digest", "use --level full", "usage");
  if (!raw.write_pieces.empty() && raw.common.pin.empty())
    return fail(Code::kUsage, "--write-pieces", "writes a pin again", "pass --pin", "usage");
  if (raw.from_hf && (!raw.common.pin.empty() || !raw.sums.empty()))
    return fail(Code::kUsage, "--from-hf", "cannot be combined with --pin or --sums", "give one of them", "usage");
  p.pin = raw.common.pin;
  p.sums = raw.sums;
  p.report = raw.report;
  p.write_sums = raw.write_sums;
  p.in_toto = raw.in_toto;
  p.write_pieces = raw.write_pieces;
  p.piece_bytes = raw.piece_bytes;
  p.token_file = raw.token_file;
  p.no_token = raw.no_token;
  p.from_hf = raw.from_hf;
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

const char* level_name(Level level) {
  switch (level) {
    case Level::kStat:
      return "stat";
    case Level::kQuick:
      return "quick";
    case Level::kFull:
      return "full";
    case Level::kHub:
      return "hub";
  }
  return "";
}

}  // namespace dsf::verify
