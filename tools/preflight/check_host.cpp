// host.*: settings of this machine that have made other installations fail or crawl. Source: engram.md 8.7,
// gb10.md 2.5, 7, 8, 10.
#include <sys/resource.h>
#include <unistd.h>

#include "dsf/base/numeric.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

std::string list_of(const std::vector<Machine::Process>& processes) {
  std::string out;
  for (size_t i = 0; i < processes.size() && i < 5; ++i)
    out += (i > 0 ? ", " : "") + processes[i].name + " (" + std::to_string(processes[i].pid) + ")";
  if (processes.size() > 5) out += " and " + std::to_string(processes.size() - 5) + " more";
  return out;
}

}  // namespace

void check_kernel(Context& c, Outcome& out) {
  const std::string kernel = c.machine.kernel(), driver = c.machine.driver();
  const long page = ::sysconf(_SC_PAGESIZE);
  c.facts["kernel"] = kernel;
  c.facts["boot_id"] = c.machine.boot_id();
  c.facts["page_bytes"] = std::to_string(page);
  if (!driver.empty()) c.facts["driver"] = driver;
  out.summary = kernel + ", " + std::to_string(page) + " byte pages" +
                (driver.empty() ? ", no NVIDIA driver" : ", driver " + driver);
  if (page >= 65536 && (driver.starts_with("595.") || driver.starts_with("610.")))
    out.add({Status::kWarning, "page_size",
             "kernel " + kernel + ": 64 KiB pages and driver " + driver +
                 " together have caused Xid 31 near 4 GiB boundaries",
             "boot the 4 KiB kernel, or use driver 580"});
}

void check_swap(Context& c, Outcome& out) {
  const uint64_t swap = c.machine.swap_bytes();
  out.summary = swap == 0 ? "off" : format_bytes(swap);
  if (swap > 0 && c.cuda())
    out.add(
        {Status::kWarning, "swap",
         "swap: " + format_bytes(swap) + " are on; it cannot hold device memory and turns a clean failure into a stall",
         "run swapoff -a while serving"});
}

void check_huge_pages(Context& c, Outcome& out) {
  const std::string mode = c.machine.huge_pages();
  out.summary = mode.empty() ? "not known" : mode;
  if (mode == "always" && c.cuda())
    out.add({Status::kWarning, "huge_pages",
             "transparent_hugepage: is always; compaction beside 100 GiB of weights has stalled nodes for minutes",
             "write madvise to /sys/kernel/mm/transparent_hugepage/enabled"});
}

void check_memlock(Context& c, Outcome& out) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return Context::skip(out, "the limit cannot be read");
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  out.summary = unlimited ? "unlimited" : format_bytes(limit.rlim_cur);
  if (!unlimited && c.plan.world_size > 1 && c.cuda())
    out.add({Status::kFail, "memlock",
             "memlock: only " + format_bytes(limit.rlim_cur) + " may be locked, RDMA buffers need more",
             "set LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited"});
}

void check_killers(Context& c, Outcome& out) {
  const auto killers = c.machine.named({"earlyoom", "nohang", "systemd-oomd", "oomd", "raylet"});
  out.summary = killers.empty() ? "none" : list_of(killers);
  if (!killers.empty())
    out.add({Status::kWarning, "memory_killer",
             list_of(killers) + ": may end the engine when memory is nearly full, as it is while serving",
             "exempt the engine from it, or stop it"});
}

void check_others(Context& c, Outcome& out) {
  const auto inside = c.machine.in_containers();
  const std::string governor = c.machine.cpu_governor();
  out.summary = (inside.empty() ? "no containers" : std::to_string(inside.size()) + " processes in containers") +
                std::string(", cpu governor ") + (governor.empty() ? "not known" : governor);
  if (!inside.empty() && c.cuda())
    out.add({Status::kWarning, "containers", list_of(inside) + ": run in containers on this node",
             "stop them when they use memory or the GPU"});
  if (governor == "powersave")
    out.add({Status::kNote, "governor", "cpu governor: powersave, hashing and scheduling run slower",
             "set it to performance or schedutil"});
}

}  // namespace dsf::preflight
