#pragma once
// Facts about this machine, read from /proc and /sys below a root, so that tests show it a made tree. Nothing is judged
// here, nothing needs a GPU, and what cannot be read is simply absent. Values; one thread. Source: gb10.md 2, 5, 7;
// cluster.md 4.4; engram.md 8.7.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "dsf/manifest/nodes.h"

namespace dsf::preflight {

class Machine {
 public:
  explicit Machine(std::filesystem::path root) : root_(std::move(root)) {}

  struct Memory {
    uint64_t total = 0, available = 0, free = 0, cached = 0;  // bytes
  };
  std::optional<Memory> memory() const;

  struct Process {
    int pid = 0;
    std::string name, unit;  // unit: the last part of its cgroup
  };
  // Processes with an open descriptor on a GPU device node, this one left out; unreadable: processes that did not show
  // theirs.
  std::vector<Process> gpu_users(size_t& unreadable) const;
  // Processes whose name is one of these.
  std::vector<Process> named(const std::vector<std::string>& names) const;
  // Processes inside a container.
  std::vector<Process> in_containers() const;

  bool has_gpu() const;
  std::string driver() const;  // "580.95.05"; empty without a driver
  std::string kernel() const;  // "6.14.0-1013-nvidia"
  std::string boot_id() const;
  uint64_t swap_bytes() const;
  std::string huge_pages() const;  // the chosen word: "always", "madvise", "never"; empty when it cannot be read
  std::string cpu_governor() const;

  bool is_local_address(const std::string& address) const;  // IPv4 or IPv6 text
  bool listening(uint16_t port) const;                      // TCP, any local address

  // One port of an RDMA device and its netdev.
  struct Port {
    bool present = false;                 // the RDMA device is there
    bool netdev_belongs = false;          // and this is its netdev
    std::string state, rate, link_layer;  // "4: ACTIVE", "200 Gb/sec (4X HDR)", "Ethernet"
    std::string pcie_speed, pcie_width, pcie_max_speed, pcie_max_width;
    std::optional<uint64_t> mtu;
    std::optional<int64_t> carrier;
    double rate_gbps() const;  // 0 when unknown
  };
  Port port(const manifest::Lane& lane) const;

  struct Gid {
    int index = 0;
    std::string address, type, netdev;  // full IPv6 text, "RoCE v2"
    bool zero() const;
  };
  std::vector<Gid> gids(const std::string& hca) const;
  // Error counters of the port that are not zero, "name=value".
  std::vector<std::string> error_counters(const std::string& hca) const;

 private:
  std::string text(const std::filesystem::path& relative) const;  // first line, trimmed; empty when it cannot be read
  std::vector<int> pids() const;
  Process process(int pid) const;
  std::filesystem::path root_;
};

}  // namespace dsf::preflight
