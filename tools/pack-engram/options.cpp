#include "tools/pack-engram/options.h"

#include <algorithm>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/codec/sha256.h"

namespace dsf::pack_engram {

cli::ToolInfo tool_info() {
  return {
      "dsf-pack-engram",
      "Packs the Engram tables of DeepSeek-V4.1 into one row file per layer and rank, and checks such files.",
      {{"dsf-pack-engram --source release --output engram --rank 0 --world-size 2", "this node's half of both tables"},
       {"dsf-pack-engram --source release --check engram --rank 0 --world-size 2", "compare every row with the source"},
       {"dsf-pack-engram --check engram --rank 0 --world-size 2",
        "compare with the digests noted while packing; needs no source"},
       {"dsf-pack-engram --check engram --recombine --world-size 2",
        "the whole tables' digests, from all ranks' files"}}};
}

void describe(cli::App& app, RawOptions& raw) {
  app.group("What");
  app.positional("DIR", raw.dir, "folder with the tables; the same as --source", false);
  app.option("--source", raw.source, "folder with the original release's tables (index and shards)", "DIR");
  app.option("--config", raw.config, "the model's config.json (default: the one in the source)", "FILE");
  app.option("--rank", raw.rank, "whose rows: 0 to world-size - 1, or all", "R");
  app.option("--world-size", raw.world_size, "over how many ranks the tables are split", 1, 4096);
  app.group("How");
  app.option("--check", raw.check, "check the packed files of this folder, write nothing", "DIR");
  app.option("--sample", raw.sample,
             "with --check: compare N rows a file (without source N blocks), first and last included; 0 is all", 0,
             int64_t{1} << 40);
  app.option("--seed", raw.seed, "of the sample (default: from the clock; always printed)", 0, INT64_MAX);
  app.flag("--recombine", raw.recombine,
           "with --check: the digest of each whole table, from the files of all ranks in one folder");
  app.list("--expect", raw.expect, "with --recombine: what layer L must give; may be repeated", "L=SHA256");
  app.flag("--list", raw.list, "name the source files that hold the tables, and end");
  app.flag("--force", raw.force, "pack again what is already right");
  app.option("--report", raw.report, "write the record here too", "FILE");
  app.common(raw.common, cli::kJson | cli::kJobs | cli::kDryRun | cli::kOutput | cli::kPin);
}

namespace {
Unexpected usage(std::string subject, std::string what, std::string fix) {
  return fail(Code::kUsage, std::move(subject), std::move(what), std::move(fix), "usage");
}

Result<std::vector<int>> ranks_of(const std::string& text, int world) {
  std::vector<int> out;
  if (text == "all") {
    for (int r = 0; r < world; ++r) out.push_back(r);
    return out;
  }
  const auto r = parse_u64(text);
  if (!r || *r >= static_cast<uint64_t>(world))
    return usage("--rank", "'" + text + "' is not a rank of " + std::to_string(world),
                 "give 0 to " + std::to_string(world - 1) + ", or all");
  out.push_back(static_cast<int>(*r));
  return out;
}
Result<std::map<uint64_t, std::string>> expectations(const std::vector<std::string>& texts) {
  std::map<uint64_t, std::string> out;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const auto layer = equals == std::string::npos ? std::nullopt : parse_u64(std::string_view(text).substr(0, equals));
    const auto digest = equals == std::string::npos ? std::nullopt : codec::Digest::from_hex(text.substr(equals + 1));
    if (!layer || !digest) return usage("--expect", "'" + text + "' is not LAYER=SHA256", "for example 14=0c33910e...");
    out[*layer] = digest->hex();
  }
  return out;
}
}  // namespace

Result<Plan> make_plan(const RawOptions& raw) {
  Plan p;
  if (!raw.dir.empty() && !raw.source.empty()) return usage("DIR", "the source is given twice", "give DIR or --source");
  p.source = raw.dir.empty() ? raw.source : raw.dir;
  p.world = static_cast<int>(raw.world_size);
  DSF_TRY(p.ranks, ranks_of(raw.rank, p.world));
  if (raw.list && !raw.check.empty()) return usage("--list", "cannot be combined with --check", "give one of them");
  if (raw.check.empty() && (raw.sample != 0 || raw.seed >= 0))
    return usage("--sample", "belongs to --check", "packing always takes every row");
  if (!raw.check.empty() && !raw.common.output.empty())
    return usage("--output", "cannot be combined with --check", "give one of them");
  p.mode = raw.list            ? Mode::kList
           : raw.check.empty() ? Mode::kPack
           : p.source.empty()  ? Mode::kCheckDigests
                               : Mode::kCheckSource;
  if (!raw.recombine && !raw.expect.empty()) return usage("--expect", "belongs to --recombine", "add --recombine");
  if (raw.recombine) {
    if (raw.check.empty() || !p.source.empty() || raw.sample != 0)
      return usage("--recombine", "reads packed files alone, whole",
                   "give --check DIR, and neither a source nor --sample");
    p.mode = Mode::kRecombine;
    DSF_TRY(p.expected_layers, expectations(raw.expect));
  }
  if (p.source.empty() && p.mode != Mode::kCheckDigests && p.mode != Mode::kRecombine)
    return usage("--source", "no source given", "pass the folder of the original release");
  if (!p.source.empty()) p.config = raw.config.empty() ? p.source / "config.json" : std::filesystem::path(raw.config);
  if (p.mode == Mode::kPack)
    p.packs = raw.common.output.empty() ? p.source / "engram" : std::filesystem::path(raw.common.output);
  else
    p.packs = raw.check;
  p.sample_rows = raw.sample;
  p.seed = raw.seed >= 0 ? static_cast<uint64_t>(raw.seed) : static_cast<uint64_t>(unix_time_ms());
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  p.jobs = raw.common.jobs > 0 ? raw.common.jobs : cores;
  p.force = raw.force;
  p.dry_run = raw.common.dry_run;
  p.json = raw.common.json;
  p.quiet = raw.common.quiet;
  p.report = raw.report;
  p.pin = raw.common.pin;
  return p;
}

}  // namespace dsf::pack_engram
