#pragma once
// Command line of dsf-pack-engram: flags to raw options, raw options to a validated plan. Source: engram.md 6.5, 7.3.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/cli/app.h"

namespace dsf::pack_engram {

struct RawOptions {
  cli::CommonFlags common;
  std::string dir, source, config, check, rank = "0", report;
  int64_t world_size = 1, sample = 0, seed = -1;
  bool list = false, force = false, recombine = false;
  std::vector<std::string> expect;  // LAYER=SHA256
};

enum class Mode { kPack, kCheckSource, kCheckDigests, kRecombine, kList };

struct Plan {
  Mode mode = Mode::kPack;
  std::filesystem::path source, config;  // empty when checking from digests alone
  std::filesystem::path packs;           // folder of the packed files: written (kPack) or read
  std::vector<int> ranks;
  int world = 1;
  int64_t sample_rows = 0;  // rows (from digests: blocks) compared per file; 0: all
  uint64_t seed = 0;        // of the sample
  int jobs = 1;             // files worked on at once
  bool force = false, dry_run = false, json = false, quiet = false;
  std::filesystem::path report, pin;
  std::map<uint64_t, std::string> expected_layers;  // kRecombine: digests by layer
};

// The flag table; values land in raw.
void describe(cli::App& app, RawOptions& raw);
cli::ToolInfo tool_info();
// Errors: kUsage.
Result<Plan> make_plan(const RawOptions& raw);

}  // namespace dsf::pack_engram
