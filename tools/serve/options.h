#pragma once
// Command line of dsf-serve: text to raw options, raw options to a validated plan.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsf/cli/app.h"
#include "dsf/http/server.h"
#include "tools/serve/api/service.h"
#include "tools/serve/backends/registry/registry.h"

namespace dsf::serve {

struct RawOptions {
  cli::CommonFlags common;
  std::string model, engram, backend = "cpu", load_format = "checkpoint", host = "127.0.0.1", port_file, api_key_file, effort_table;
  std::string thinking = "75", developer = "system";
  std::vector<std::string> names;
  int64_t port = 8000, max_model_len = 0, max_num_seqs = 8, prefill_chunk = 512, speculative = 0, max_queue = 64, max_reply = 0, device = 0, dummy_experts = 0;
  double temperature = -1, top_p = -1;  // negative: the checkpoint's
  uint64_t max_body = uint64_t{64} << 20;
  int64_t keepalive_us = 15'000'000, queue_timeout_us = 0, request_timeout_us = 0, drain_timeout_us = 30'000'000;
  bool no_graphs = false, deterministic_seed = false, parse_special = false, rescue_unclosed = false, request_log = false;
};

struct ServePlan {
  std::filesystem::path model_dir, engram_dir, port_file;  // engram_dir, port_file: may be empty
  http::ServerOptions http;
  EngineLoopOptions loop;
  ServiceOptions service;  // without identity and log
  EngineRequest engine;    // without note
  int64_t drain_timeout_us = 0;
  bool request_log = false;
};

cli::ToolInfo tool_info();
void add_flags(cli::Command& command, RawOptions& raw);
// Reads the small files the flags name (API key, effort table, generation_config.json). Errors: kUsage, kMissing.
Result<ServePlan> make_plan(const RawOptions& raw);

}  // namespace dsf::serve
