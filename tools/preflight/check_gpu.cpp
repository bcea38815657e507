// gpu.*: is there one, and is it free. Source: engram.md 8.7, cluster.md 4.4.
#include "dsf/base/numeric.h"
#include "dsf/gpu/gpu.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {

void check_gpu_present(Context& c, Outcome& out) {
  if (!c.cuda()) return Context::skip(out, "the plan is for the CPU backend");
  if (!c.machine.has_gpu())
    return out.add(
        {Status::kFail, "no_gpu", "GPU: there is no /dev/nvidia0 here", "load the driver, or plan with --backend cpu"});
  const std::string driver = c.machine.driver();
  out.summary = driver.empty() ? "device node, driver version not known" : "driver " + driver;
  if (gpu::count() == 0) {
    // This build may have no CUDA; the device node alone is then all that can be said.
    out.summary += ", not opened by this build";
    return;
  }
  const auto facts = gpu::open(0);
  if (!facts) return out.add(finding_of(facts.error()));
  out.summary +=
      ", " + facts->name + ", sm_" + std::to_string(facts->arch) + ", " + std::to_string(facts->n_sms) + " SMs";
  c.facts["gpu"] = facts->name;
  c.facts["gpu_arch"] = "sm_" + std::to_string(facts->arch);
  const std::string want = c.node() != nullptr ? c.node()->device_arch : "";
  if (!want.empty() && want != c.facts["gpu_arch"])
    out.add({Status::kFail, "arch", "GPU: is sm_" + std::to_string(facts->arch) + ", the node file says " + want,
             "correct the node file, or use the right machine"});
}

void check_gpu_idle(Context& c, Outcome& out) {
  if (!c.machine.has_gpu()) return Context::skip(out, "there is no GPU here");
  size_t unreadable = 0;
  const auto users = c.machine.gpu_users(unreadable);
  out.summary = std::to_string(users.size()) + " processes use it";
  for (const auto& p : users)
    out.add({c.cuda() ? Status::kFail : Status::kWarning, "gpu_busy",
             "GPU: " + p.name + " (" + std::to_string(p.pid) + (p.unit.empty() ? "" : ", " + p.unit) +
                 ") has it open; two models do not fit into one memory",
             "stop that process"});
  if (unreadable > 0 && users.empty())
    out.add({Status::kNote, "unseen",
             "GPU: the open files of " + std::to_string(unreadable) + " processes of other users cannot be read",
             "run as root to see them, too"});
}

}  // namespace dsf::preflight
