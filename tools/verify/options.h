#pragma once
// Command line of dsf-verify: flags to raw options, raw options to a validated plan. Source: hub.md 5.1, 3.16.
#include <filesystem>
#include <string>

#include "dsf/base/result.h"
#include "dsf/cli/app.h"

namespace dsf::verify {

struct RawOptions {
  cli::CommonFlags common;
  std::string dir = ".", level = "full", report, sums, write_sums;
  bool no_extra = false, partial = false, strict = false, warnings_as_errors = false, allow_open = false;
};

enum class Level {
  kStat,   // present, regular, size
  kQuick,  // and structure, index, digests of small files
  kFull,   // and the digest of every file
};

struct Plan {
  std::filesystem::path dir;
  Level level = Level::kFull;
  std::filesystem::path pin, sums;            // expectations; empty: look beside the files
  std::filesystem::path report, write_sums;   // outputs; empty: none
  int jobs = 1;
  bool no_extra = false;             // files that a complete pin does not name are errors
  bool partial = false;              // shards that are not expected here may be missing
  bool strict = false;               // tensors that an index does not name are errors
  bool warnings_as_errors = false;
  bool allow_open = false;           // a pin that leaves digests open checks what it has
  bool json = false, quiet = false;
};

inline constexpr uint64_t kSmallFileBytes = 16u << 20;  // hashed at every level from quick on

cli::ToolInfo tool_info();
void describe(cli::App& app, RawOptions& raw);
Result<Plan> make_plan(const RawOptions& raw);  // Errors: kUsage
const char* level_name(Level level);

}  // namespace dsf::verify
