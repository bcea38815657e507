#pragma once
// The parts of /proc, /sys and /dev that dsf-preflight looks at, as a healthy node of a pair shows them; tests change
// what they need.
#include <filesystem>
#include <string>

#include "dsf/test/folders.h"

namespace dsf::test {

class MadeMachine {
 public:
  // rank: of manifests/nodes/pair.example.json; gpu: with device node and driver.
  explicit MadeMachine(int rank = 0, bool gpu = true) {
    put("proc/meminfo",
        "MemTotal:       125829120 kB\nMemFree:        118489088 kB\nMemAvailable:   120586240 kB\nCached:          "
        "1048576 kB\n");
    put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
    put("proc/sys/kernel/osrelease", "6.14.0-1013-nvidia\n");
    put("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n");
    put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    put("proc/net/tcp",
        "  sl  local_address rem_address   st\n   0: 0100007F:0016 00000000:0000 0A 0\n   1: 0100007F:1F40 "
        "0100007F:C001 01 0\n");
    put("proc/net/tcp6", "  sl  local_address\n");
    put("proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo\n");
    put("proc/net/fib_trie", "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- " + address(rank, 1) +
                                 "\n        /32 host LOCAL\n     |-- " + address(rank, 2) +
                                 "\n        /32 host LOCAL\n");
    put("proc/77/comm", "nginx\n");
    put("proc/77/cgroup", "0::/system.slice/nginx.service\n");
    std::filesystem::create_directories(root() / "proc/77/fd");
    const std::string f = rank == 0 ? "0np0" : "1np1", h = rank == 0 ? "f0" : "f1";
    lane("enp1s0f" + f, "rocep1s0" + h, address(rank, 1));
    lane("enP2p1s0f" + f, "roceP2p1s0" + h, address(rank, 2));
    if (!gpu) return;
    put("dev/nvidia0", "");
    put("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n");
  }

  const std::filesystem::path& root() const { return dir_.path(); }
  void put(const std::string& file, const std::string& text) const {
    const auto path = root() / file;
    std::filesystem::create_directories(path.parent_path());
    REQUIRE(io::write_file_atomic(path, text));
  }
  void process(int pid, const std::string& name, const std::string& cgroup, const std::string& open_file = "") const {
    const std::string base = "proc/" + std::to_string(pid);
    put(base + "/comm", name + "\n");
    put(base + "/cgroup", "0::" + cgroup + "\n");
    std::filesystem::create_directories(root() / base / "fd");
    if (!open_file.empty()) std::filesystem::create_symlink(open_file, root() / base / "fd" / "5");
  }
  static std::string address(int rank, int subnet) {
    return "10.12." + std::to_string(subnet) + "." + std::to_string(rank + 1);
  }

 private:
  void lane(const std::string& netdev, const std::string& hca, const std::string& address) const {
    const std::string base = "sys/class/infiniband/" + hca, port = base + "/ports/1";
    put(port + "/state", "4: ACTIVE\n");
    put(port + "/rate", "200 Gb/sec (4X HDR)\n");
    put(port + "/link_layer", "Ethernet\n");
    for (const char* which : {"current", "max"}) {
      put(base + "/device/" + which + "_link_speed", "32.0 GT/s PCIe\n");
      put(base + "/device/" + which + "_link_width", "4\n");
    }
    put(base + "/device/net/" + netdev + "/mtu", "9000\n");
    put("sys/class/net/" + netdev + "/mtu", "9000\n");
    put("sys/class/net/" + netdev + "/carrier", "1\n");
    put(port + "/hw_counters/out_of_sequence", "0\n");
    gid(hca, 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", netdev);
    gid(hca, 1, "0000:0000:0000:0000:0000:ffff:" + hex(address), "IB/RoCE v1", netdev);
    gid(hca, 3, "0000:0000:0000:0000:0000:ffff:" + hex(address), "RoCE v2", netdev);
    gid(hca, 4, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
  }
  void gid(const std::string& hca, int index, const std::string& address, const std::string& type,
           const std::string& netdev) const {
    const std::string port = "sys/class/infiniband/" + hca + "/ports/1/", n = std::to_string(index);
    put(port + "gids/" + n, address + "\n");
    put(port + "gid_attrs/types/" + n, type + "\n");
    put(port + "gid_attrs/ndevs/" + n, netdev + "\n");
  }
  // "10.12.1.2" as "0a0c:0102".
  static std::string hex(const std::string& address) {
    int a = 0, b = 0, c = 0, d = 0;
    REQUIRE(std::sscanf(address.c_str(), "%d.%d.%d.%d", &a, &b, &c, &d) == 4);
    char text[16];
    std::snprintf(text, sizeof text, "%02x%02x:%02x%02x", static_cast<unsigned>(a) & 255,
                  static_cast<unsigned>(b) & 255, static_cast<unsigned>(c) & 255, static_cast<unsigned>(d) & 255);
    return text;
  }
  TempDir dir_;
};

}  // namespace dsf::test
