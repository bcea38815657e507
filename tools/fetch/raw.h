#pragma once
// The command line as text and numbers, before it is a plan: what the flag tables fill in and the commands read.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsf/cli/app.h"
#include "dsf/hub/hub.h"
#include "tools/fetch/get_plan.h"

namespace dsf::fetch {

struct Raw {
  cli::CommonFlags common;
  std::string verify_after = "auto";
  std::string what, revision, local_dir, token_file, cacert, name;
  std::vector<std::string> paths, include, exclude, trusted_hosts, roles;
  int64_t files = 4, retries = 10, wait_us = 0, stall_us = 0;
  uint64_t piece = 0, window = 4ull << 30, reserve = 1ull << 30, limit_rate = 0;
  bool no_token = false, offline = false, overwrite = false, allow_open = false, force = false, keep_bad = false,
       fail_fast = false;
  bool portable = false, no_space_check = false, update = false, insecure = false, insecure_token = false;
  // tensors
  std::vector<std::string> names, regexes, rows;
  std::string out, raw_dir, sparse_dir;
  bool allow_constant = false;
  // publish, bundle, clean, sign
  std::string dst, how = "auto", bundle, base, key, signature_key;
  uint64_t volume = 64ull << 30;
  int64_t level = 0;
  bool versioned = false, yes = false, state = false;

  int connections() const { return common.jobs > 0 ? common.jobs : 16; }
};

// A subcommand and what it does once its flags are read.
struct Handler {
  cli::Command* command;
  std::function<Result<int>()> run;
};
// publish, bundle, clean and sign: the commands that need no Hub.
void add_local_commands(cli::App& app, Raw& raw, std::vector<Handler>& handlers);

void get_flags(cli::Command& c, Raw& raw);
void tensors_flags(cli::Command& c, Raw& raw);
void pin_flags(cli::Command& c, Raw& raw);
void ls_flags(cli::Command& c, Raw& raw);
void doctor_flags(cli::Command& c, Raw& raw);

// Settings of the Hub from flags and environment, with the stop switch set.
Result<std::shared_ptr<hub::Shared>> connect(const Raw& raw);
// What get and tensors share. Errors: kUsage for an unknown role.
Result<SourceOptions> source_of(const Raw& raw, const hub::Settings& settings);

}  // namespace dsf::fetch
