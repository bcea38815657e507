#pragma once
// What the checks share: the plan, and everything that has been opened so far. One thread.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "dsf/engram/layout.h"
#include "dsf/manifest/record.h"
#include "dsf/model/config.h"
#include "dsf/safetensors/safetensors.h"
#include "tools/preflight/checks.h"
#include "tools/preflight/machine.h"
#include "tools/preflight/options.h"

namespace dsf::preflight {

struct Context {
  const Plan& plan;
  const Machine machine;
  std::optional<model::Config> config{};                // after config.valid
  std::optional<engram::Layout> layout{};               // the same, when the model has Engram tables
  std::optional<safetensors::Checkpoint> checkpoint{};  // after shards.open
  std::optional<safetensors::Checkpoint> sidecar{};     // the same, with --bias-vl
  std::vector<manifest::Input> inputs{};                // digests of small files read
  std::map<std::string, std::string> facts{};           // for the record: counts, digests, byte figures

  explicit Context(const Plan& p) : plan(p), machine(p.system_root) {}
  bool cuda() const { return plan.memory.residence == model::Residence::kStored; }
  // This node in the node file, or nullptr without one.
  const manifest::Node* node() const {
    return plan.nodes ? &plan.nodes->nodes[static_cast<size_t>(plan.rank)] : nullptr;
  }
  bool has_drafts() const { return checkpoint && checkpoint->contains("mtp.0.main_norm.weight"); }
  // "skipped" with the reason; for checks whose input another check could not provide.
  static void skip(Outcome& out, std::string why);
  // Notes the digest of a file that a check has read.
  void read(const std::filesystem::path& file);
};

// A Result's error as a finding of this check.
Finding finding_of(const Error& error);

}  // namespace dsf::preflight
