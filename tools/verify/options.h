#pragma once
// Command line of dsf-verify: flags to raw options, raw options to a validated plan. Source: hub.md 5.1, 3.16.
#include <filesystem>
#include <string>

#include "dsf/base/result.h"
#include "dsf/cli/app.h"

namespace dsf::verify {

inline constexpr uint64_t kPieceBytes = 64u << 20;  // of --write-pieces

struct RawOptions {
  cli::CommonFlags common;
  std::string dir = ".", level = "full", report, sums, write_sums;
  std::string in_toto, write_pieces, token_file;
  bool no_extra = false, partial = false, strict = false, warnings_as_errors = false, allow_open = false,
       from_hf = false;
  bool no_token = false;
  uint64_t piece_bytes = kPieceBytes;  // not on the command line: one size everywhere
};

enum class Level {
  kStat,   // present, regular, size
  kQuick,  // and structure, index, digests of small files
  kFull,   // and the digest of every file
  kHub,    // and the expectations against the Hub's listing of the pinned commit
};

struct Plan {
  std::filesystem::path dir;
  Level level = Level::kFull;
  std::filesystem::path pin, sums;                                  // expectations; empty: look beside the files
  std::filesystem::path report, write_sums, in_toto, write_pieces;  // outputs; empty: none
  std::filesystem::path token_file;  // of the Hub
  uint64_t piece_bytes = kPieceBytes;
  bool no_token = false;
  bool from_hf = false;  // expect what the hf client noted beside the files
  int jobs = 1;
  bool no_extra = false;  // files that a complete pin does not name are errors
  bool partial = false;   // shards that are not expected here may be missing
  bool strict = false;    // tensors that an index does not name are errors
  bool warnings_as_errors = false;
  bool allow_open = false;  // a pin that leaves digests open checks what it has
  bool json = false, quiet = false;
};

inline constexpr uint64_t kSmallFileBytes = 16u << 20;  // hashed at every level from quick on

cli::ToolInfo tool_info();
void describe(cli::App& app, RawOptions& raw);
void describe_repair(cli::Command& command, RawOptions& raw);
Result<Plan> make_plan(const RawOptions& raw);  // Errors: kUsage
const char* level_name(Level level);

}  // namespace dsf::verify
