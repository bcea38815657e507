#pragma once
// The command line as every tool shares it: a flag table, --help, --version, --generate completion-{bash,zsh,fish} and manual
// sections from that one table, environment DSF_* below flags, and exit codes.
//
// A tool describes its flags, binding each to a plain variable (raw options), then turns raw options into a validated plan itself.
// CLI11 does the tokenising inside app.cpp only. Use from the main thread, before others start.
//
//   int main(int argc, char** argv) {
//     return dsf::cli::run_main(argc, argv, [](dsf::cli::Args args) -> dsf::Result<int> { ... });
//   }
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::cli {

struct Example {
  std::string command, what;
};

struct ToolInfo {
  std::string name;     // "dsf-fetch"
  std::string summary;  // one sentence
  std::vector<Example> examples;
};

// Flags that conventions give to every tool; App::common() adds those named by the mask.
struct CommonFlags {
  bool json = false, quiet = false, dry_run = false;
  int verbose = 0;
  int jobs = 0;  // 0: as many as there are cores
  std::string pin, output;
};
enum CommonMask : unsigned { kJson = 1, kJobs = 2, kDryRun = 4, kPin = 8, kOutput = 16 };  // quiet and verbose always

struct Args {
  int argc;
  char** argv;
};

// One command (the tool, or a subcommand of it). Bound variables must outlive parse(). Names as CLI11 spells them:
// "-j,--jobs" for flags, "DIR" (no dash) for positionals.
class Command {
 public:
  Command& flag(const std::string& names, bool& value, const std::string& help);
  Command& option(const std::string& names, std::string& value, const std::string& help, const std::string& placeholder = "TEXT");
  Command& option(const std::string& names, int64_t& value, const std::string& help, int64_t min = INT64_MIN, int64_t max = INT64_MAX);
  Command& option(const std::string& names, double& value, const std::string& help, double min, double max);
  Command& list(const std::string& names, std::vector<std::string>& values, const std::string& help, const std::string& placeholder = "TEXT");
  Command& choice(const std::string& names, std::string& value, std::vector<std::string> allowed, const std::string& help);
  Command& bytes(const std::string& names, uint64_t& value, const std::string& help);             // "64MiB"
  Command& duration(const std::string& names, int64_t& microseconds, const std::string& help);    // "250ms"
  Command& positional(const std::string& name, std::string& value, const std::string& help, bool required = true);
  Command& positionals(const std::string& name, std::vector<std::string>& values, const std::string& help, size_t at_least = 0);
  Command& group(const std::string& title);  // heading for the flags that follow
  Command& rare_group(const std::string& title);  // the same; shown by --help-all and in the manual only
  Command& common(CommonFlags& flags, unsigned mask);
  Command& subcommand(const std::string& name, const std::string& summary);
  Command& require_subcommand();
  bool chosen() const;  // for a subcommand, after parse()
  // Was the flag given (on the command line or by its DSF_* variable)?
  bool given(const std::string& name) const;

  struct Impl;
  explicit Command(std::unique_ptr<Impl> impl);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

 protected:
  std::unique_ptr<Impl> impl_;
};

class App : public Command {
 public:
  explicit App(ToolInfo info);
  // Fills the bound variables. A value: the process should end now with that code (help, version or completion were printed).
  // Errors: kUsage.
  Result<std::optional<int>> parse(Args args);
  const ToolInfo& info() const { return info_; }

 private:
  ToolInfo info_;
};

// Runs body, prints its error as "tool: subject: what; fix" on stderr and turns everything into an exit code. Exceptions are 70.
int run_main(int argc, char** argv, const std::function<Result<int>(Args)>& body);

}  // namespace dsf::cli
