#pragma once
// Command line of dsf-preflight: flags to raw options, raw options to a validated plan. Source: engram.md 8.6, 8.7.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/cli/app.h"
#include "dsf/manifest/nodes.h"
#include "dsf/model/memory.h"

namespace dsf::preflight {

struct RawOptions {
  cli::CommonFlags common;
  std::string model, engram, bias_vl, images = "on", backend = "auto", report, nodes, url;
  int64_t world_size = 0, rank = -1, http_port = -1, max_model_len = 0, max_sessions = 8, max_step_tokens = 512;
  uint64_t memory = 0;
  std::vector<std::string> only, skip;
  uint64_t sample_seed = 0;  // no flag; a test that needs the same rows every run sets it
  bool deep = false, warnings_as_errors = false, list_checks = false;
  std::string system_root = "/";  // where /proc, /sys and /dev are; tests show a made tree
};

struct Plan {
  std::filesystem::path model, engram, bias_vl;  // the last two may be empty
  int rank = 0, world_size = 1;
  bool images = true;                   // image rows are to be served: their biases are required
  uint64_t sample_seed = 0;             // of the rows that are compared; 0: another one every run
  bool deep = false;                    // read every packed row, not a sample
  model::MemoryRequest memory;          // max_model_len 0: the configuration's
  uint64_t memory_budget = 0;           // 0: what this machine has available
  uint64_t memory_margin = 0;           // must stay free beside the plan
  std::vector<std::string> only, skip;  // check ids
  bool warnings_as_errors = false, json = false, quiet = false;
  std::filesystem::path report, nodes_file, system_root = "/";
  std::optional<manifest::Nodes> nodes;  // of nodes_file
  std::string url;                       // of a started server; empty: not asked
  uint16_t http_port = 0;                // that must be free here; 0: this rank serves none
  uint16_t rendezvous_port = 29571;
};

cli::ToolInfo tool_info();
void describe(cli::App& app, RawOptions& raw);
// Reads the node file. Errors: kUsage, and those of manifest::load_nodes.
Result<Plan> make_plan(const RawOptions& raw);

}  // namespace dsf::preflight
