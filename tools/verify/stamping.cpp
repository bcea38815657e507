#include "tools/verify/stamping.h"

#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/version.h"
#include "dsf/io/file.h"

namespace dsf::verify {
namespace {

std::string boot_id() {
  const auto text = io::read_text("/proc/sys/kernel/random/boot_id", 4096);
  return text ? text->substr(0, text->find('\n')) : "";
}

}  // namespace

Stamping::Stamping(const Plan& plan, std::string evidence)
    : plan_(plan), evidence_(std::move(evidence)), network_(manifest::on_network_fs(plan.dir)) {
  if (auto loaded = manifest::load_stamps(plan.dir)) stamps_ = std::move(*loaded);
}

bool Stamping::holds(const FileReport& file) const {
  const auto it = stamps_.find(file.path);
  if (it == stamps_.end() || file.expected_sha256.empty() || it->second.sha256 != file.expected_sha256) return false;
  const auto state = manifest::file_state(plan_.dir / file.path);
  return state && manifest::holds(it->second, *state, unix_time_ms(), network_);
}

void Stamping::update(const std::vector<FileReport>& files) {
  const std::string boot = boot_id(), tool = cli::tool_id("dsf-verify");
  bool changed = false;
  for (const FileReport& f : files) {
    const bool proven = f.status == "ok" && !f.expected_sha256.empty() && f.sha256 == f.expected_sha256;
    if (!proven) {
      changed = stamps_.erase(f.path) > 0 || changed;
      continue;
    }
    if (plan_.level == Level::kQuick && holds(f)) continue;
    const auto state = manifest::file_state(plan_.dir / f.path);
    if (!state) continue;
    const int64_t now = unix_time_ms();
    stamps_[f.path] = {.path = f.path,
                       .state = *state,
                       .sha256 = f.sha256,
                       .evidence = evidence_,
                       .level = level_name(plan_.level),
                       .read_mode = "buffered",
                       .verified_at = rfc3339_utc(now),
                       .tool = tool,
                       .boot_id = boot,
                       .verified_ms = now};
    changed = true;
  }
  if (!changed) return;
  if (const auto written = manifest::write_stamps(plan_.dir, stamps_); !written)
    cli::log(cli::Level::kWarn, "stamps cannot be written, level quick will hash again",
             {{"reason", written.error().line()}});
}

}  // namespace dsf::verify
