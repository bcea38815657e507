#pragma once
// What a Command holds. Private to the cli library.
#include <CLI/CLI.hpp>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "dsf/cli/app.h"

namespace dsf::cli {

struct Command::Impl {
  CLI::App* app = nullptr;
  std::unique_ptr<CLI::App> owned;  // the root's; subcommands belong to their parent
  std::string group = "Options";
  std::string env_prefix;           // "DSF_" : --base-url may come from DSF_BASE_URL
  std::vector<std::unique_ptr<Command>> children;

  // Adds help, group and environment to a fresh CLI11 option.
  CLI::Option* dress(CLI::Option* option, bool environment);
};

// An option's type for people: "TEXT:{auto,always}" is "auto|always", "N:INT in [0 - 4096]" is "N".
std::string placeholder(std::string type);

// A rare group's title has this before it inside CLI11.
constexpr char kRareMark = '+';
inline std::string shown_title(const std::string& group) { return group.substr(group.starts_with(kRareMark) ? 1 : 0); }

// Every command with its options, as a section of the manual.
std::string manual_options(const CLI::App& root);

// Script for the shell on stdout.
std::string completion(const CLI::App& root, const std::string& tool, const std::string& shell);

}  // namespace dsf::cli
