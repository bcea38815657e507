#include "tools/preflight/machine.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"

namespace dsf::preflight {
namespace {

namespace fs = std::filesystem;

std::string trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return "";
  return std::string(s.substr(first, s.find_last_not_of(" \t\n") - first + 1));
}

std::vector<std::string> lines_of(const fs::path& file) {
  const auto text = io::read_text(file, 16 << 20);
  std::vector<std::string> out;
  std::istringstream in(text ? *text : "");
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string w; in >> w;) out.push_back(w);
  return out;
}

std::vector<std::string> names_in(const fs::path& dir) {
  std::vector<std::string> out;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(dir, ec)) out.push_back(e.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

bool gpu_node(const std::string& target) {
  // nvidiactl and nvidia-uvm are held by monitors, too; a device's own node means work on it.
  constexpr std::string_view kPrefix = "/dev/nvidia";
  return (target.starts_with(kPrefix) && target.size() > kPrefix.size() &&
          target.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos) ||
         target.starts_with("/dev/nvidia-uvm");
}

}  // namespace

std::string Machine::text(const fs::path& relative) const {
  const auto all = io::read_text(root_ / relative, 1 << 20);
  return all ? trimmed(std::string_view(*all).substr(0, all->find('\n'))) : "";
}

std::optional<Machine::Memory> Machine::memory() const {
  Memory m;
  const std::pair<const char*, uint64_t*> wanted[] = {
      {"MemTotal:", &m.total}, {"MemAvailable:", &m.available}, {"MemFree:", &m.free}, {"Cached:", &m.cached}};
  size_t found = 0;
  for (const std::string& line : lines_of(root_ / "proc/meminfo")) {
    const auto words = words_of(line);
    for (const auto& [key, value] : wanted) {
      if (words.size() < 2 || words[0] != key) continue;
      *value = parse_u64(words[1]).value_or(0) * kKiB;
      ++found;
    }
  }
  return found == std::size(wanted) ? std::optional(m) : std::nullopt;
}

std::vector<int> Machine::pids() const {
  std::vector<int> out;
  for (const std::string& name : names_in(root_ / "proc"))
    if (const auto pid = parse_u64(name)) out.push_back(static_cast<int>(*pid));
  return out;
}

Machine::Process Machine::process(int pid) const {
  const fs::path dir = fs::path("proc") / std::to_string(pid);
  const std::string cgroup = text(dir / "cgroup");
  return {pid, text(dir / "comm"), cgroup.substr(cgroup.rfind('/') + 1)};
}

std::vector<Machine::Process> Machine::gpu_users(size_t& unreadable) const {
  std::vector<Process> out;
  unreadable = 0;
  for (const int pid : pids()) {
    if (pid == ::getpid()) continue;
    const fs::path fds = root_ / "proc" / std::to_string(pid) / "fd";
    std::error_code ec;
    fs::directory_iterator it(fds, ec);
    if (ec) {
      ++unreadable;
      continue;
    }
    for (const auto& e : it) {
      if (!gpu_node(fs::read_symlink(e.path(), ec).string())) continue;
      out.push_back(process(pid));
      break;
    }
  }
  return out;
}

std::vector<Machine::Process> Machine::named(const std::vector<std::string>& names) const {
  std::vector<Process> out;
  for (const int pid : pids()) {
    Process p = process(pid);
    if (std::find(names.begin(), names.end(), p.name) != names.end()) out.push_back(std::move(p));
  }
  return out;
}

std::vector<Machine::Process> Machine::in_containers() const {
  std::vector<Process> out;
  for (const int pid : pids()) {
    const std::string cgroup = text(fs::path("proc") / std::to_string(pid) / "cgroup");
    if (cgroup.find("docker-") != std::string::npos || cgroup.find("libpod-") != std::string::npos ||
        cgroup.find("/docker/") != std::string::npos || cgroup.find("kubepods") != std::string::npos)
      out.push_back(process(pid));
  }
  return out;
}

bool Machine::has_gpu() const {
  std::error_code ec;
  return fs::exists(root_ / "dev/nvidia0", ec) || fs::exists(root_ / "dev/nvhost-gpu", ec);
}

std::string Machine::driver() const {
  // "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build ..."
  for (const std::string& word : words_of(text("proc/driver/nvidia/version")))
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != std::string::npos) return word;
  return "";
}

std::string Machine::kernel() const { return text("proc/sys/kernel/osrelease"); }
std::string Machine::boot_id() const { return text("proc/sys/kernel/random/boot_id"); }

uint64_t Machine::swap_bytes() const {
  uint64_t out = 0;
  for (const std::string& line : lines_of(root_ / "proc/swaps")) {
    const auto words = words_of(line);
    if (words.size() >= 3) out += parse_u64(words[2]).value_or(0) * kKiB;  // the heading has no number there
  }
  return out;
}

std::string Machine::huge_pages() const {
  const std::string all = text("sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  const size_t open = all.find('['), close = all.find(']');
  return open == std::string::npos || close == std::string::npos ? "" : all.substr(open + 1, close - open - 1);
}

std::string Machine::cpu_governor() const { return text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); }

}  // namespace dsf::preflight
