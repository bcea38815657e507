// The checks of a machine and of the cable, on made trees: every fault has its id, its class and something to do.
#include <sys/file.h>

#include <functional>

#include "dsf/json/json.h"
#include "made_machine.h"
#include "runners.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// The node file of the repository's example, with this model in its paths.
std::filesystem::path node_file(const TempDir& dir) {
  std::string text =
      *io::read_text(std::filesystem::path(DSF_SOURCE_DIR) / "manifests" / "nodes" / "pair.example.json");
  const std::string state = (dir / "state").string();
  for (size_t at; (at = text.find("/srv/dsf/model")) != std::string::npos;) text.replace(at, 14, made().exl3.string());
  for (size_t at; (at = text.find("/srv/dsf/engram")) != std::string::npos;)
    text.replace(at, 15, made().packs.string());
  for (size_t at; (at = text.find("/var/lib/dsf")) != std::string::npos;) text.replace(at, 12, state);
  REQUIRE(io::write_file_atomic(dir / "nodes.json", text));
  return dir / "nodes.json";
}

struct Site {
  TempDir dir;
  MadeMachine machine;
  std::filesystem::path nodes = node_file(dir);
  explicit Site(int rank = 0) : machine(rank) {}
  // Everything but what needs the checkpoint: those checks have tests of their own.
  preflight::RawOptions options(const std::string& only) const {
    preflight::RawOptions raw;
    raw.nodes = nodes;
    raw.system_root = machine.root();
    raw.only = {only};
    raw.common.json = true;
    return raw;
  }
};

// Status and class of the check's first finding, "ok" without one.
std::string verdict(const preflight::RawOptions& raw) {
  const Ran ran = run_preflight(raw);
  const auto root = json::parse(ran.out, "report");
  REQUIRE_MESSAGE(root, ran.err);
  for (const json::Value& item : root->find("items")->as_array()) {
    if (item.find("id")->as_string() != raw.only.front()) continue;
    const json::Value* findings = item.find("findings");
    if (findings == nullptr) return item.find("status")->as_string();
    const json::Value& first = findings->as_array().front();
    CHECK(!first.find("fix")->as_string().empty());
    CHECK((ran.code == 1) == (item.find("status")->as_string() == "fail"));
    return first.find("status")->as_string() + " " + first.find("class")->as_string();
  }
  return "absent";
}

std::string after(const std::string& check, const std::function<void(const MadeMachine&)>& change) {
  const Site site;
  change(site.machine);
  return verdict(site.options(check));
}

const std::string kPort = "sys/class/infiniband/rocep1s0f0/";

}  // namespace

TEST_CASE("a healthy node of a pair passes every check of machine and cable") {
  for (const int rank : {0, 1}) {
    const Site site(rank);
    for (const char* check :
         {"node.file", "node.address", "link.state", "link.mtu", "link.gid", "link.errors", "gpu.present", "gpu.idle",
          "ports.http", "host.kernel", "host.swap", "host.huge_pages", "host.killers", "host.others", "memory.free",
          "disk.free", "busy.files", "self.decode", "state.failure"}) {
      const std::string got = verdict(site.options(check));
      const bool other_rank = rank == 1 && std::string(check) == "ports.http";
      CHECK_MESSAGE(got == (other_rank ? "skipped" : "ok"), check);
    }
    CHECK(verdict(site.options("link.speed")) == "note not_measured");
  }
}

TEST_CASE("the rank is found by the node's address, and a wrong one is told which it is") {
  const Site worker(1);
  preflight::RawOptions raw = worker.options("node.address");
  CHECK(verdict(raw) == "ok");
  raw.rank = 0;
  CHECK(verdict(raw) == "fail address");
  CHECK(run_preflight(raw).says("this machine is rank 1: pass --rank 1"));
  raw.world_size = 3;
  CHECK(run_preflight(raw).code == 2);
  raw.world_size = 0;
  raw.rank = 2;
  CHECK(run_preflight(raw).code == 2);
  raw.nodes = "/nonexistent.json";
  CHECK(run_preflight(raw).code == 5);
}

TEST_CASE("faults of the cable") {
  using M = const MadeMachine&;
  CHECK(after("link.state", [](M m) { m.put(kPort + "ports/1/state", "1: DOWN\n"); }) == "fail port_down");
  CHECK(after("link.state", [](M m) { std::filesystem::remove_all(m.root() / kPort); }) == "fail no_hca");
  CHECK(after("link.state", [](M m) { std::filesystem::remove_all(m.root() / (kPort + "device/net")); }) ==
        "fail netdev");
  CHECK(after("link.state", [](M m) { m.put(kPort + "ports/1/link_layer", "InfiniBand\n"); }) == "warning link_layer");
  CHECK(after("link.speed", [](M m) { m.put(kPort + "ports/1/rate", "10 Gb/sec (1X QDR)\n"); }) == "fail rate");
  CHECK(after("link.speed", [](M m) { m.put(kPort + "device/current_link_width", "2\n"); }) == "warning pcie");
  CHECK(after("link.mtu", [](M m) { m.put("sys/class/net/enp1s0f0np0/mtu", "1500\n"); }) == "warning mtu");
  CHECK(after("link.mtu", [](M m) { std::filesystem::remove_all(m.root() / "sys/class/net/enp1s0f0np0"); }) ==
        "fail no_netdev");
  CHECK(after("link.gid", [](M m) { m.put(kPort + "ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000\n"); }) ==
        "fail gid");
  CHECK(after("link.gid", [](M m) { m.put(kPort + "ports/1/gid_attrs/types/3", "IB/RoCE v1\n"); }) == "fail gid");
  CHECK(after("link.errors", [](M m) { m.put(kPort + "ports/1/hw_counters/out_of_sequence", "17\n"); }) ==
        "note counters");
}

TEST_CASE("a fixed GID index must be a RoCE v2 entry of the lane's netdev") {
  const Site site;
  const auto with_index = [&](const std::string& index) {
    std::string text = *io::read_text(site.nodes);
    text.replace(text.find("\"auto\""), 6, index);
    REQUIRE(io::write_file_atomic(site.dir / "fixed.json", text));
    preflight::RawOptions raw = site.options("link.gid");
    raw.nodes = site.dir / "fixed.json";
    return verdict(raw);
  };
  CHECK(with_index("3") == "ok");
  CHECK(with_index("1") == "fail gid");
  CHECK(with_index("4") == "fail gid");
  CHECK(with_index("9") == "fail gid");
}

TEST_CASE("faults of the machine") {
  using M = const MadeMachine&;
  CHECK(after("gpu.present", [](M m) { std::filesystem::remove(m.root() / "dev/nvidia0"); }) == "skipped");
  CHECK(after("gpu.idle", [](M m) { m.process(80, "vllm", "/system.slice/docker-abc.scope", "/dev/nvidia0"); }) ==
        "fail gpu_busy");
  CHECK(after("gpu.idle", [](M m) { m.process(80, "nvtop", "/user.slice", "/dev/nvidiactl"); }) == "ok");
  CHECK(after("host.others", [](M m) { m.process(80, "vllm", "/system.slice/docker-abc.scope"); }) ==
        "warning containers");
  CHECK(after("host.killers", [](M m) { m.process(80, "earlyoom", "/system.slice/earlyoom.service"); }) ==
        "warning memory_killer");
  CHECK(after("host.swap", [](M m) {
          m.put("proc/swaps", "Filename Type Size Used Priority\n/swap.img file 16777212 0 -2\n");
        }) == "warning swap");
  CHECK(after("host.huge_pages", [](M m) {
          m.put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
        }) == "warning huge_pages");
  CHECK(after("ports.http", [](M m) {
          m.put("proc/net/tcp6", "  sl\n   0: 00000000000000000000000000000000:1F40 00:0000 0A 0\n");
        }) == "fail port_taken");
  CHECK(after("ports.rendezvous", [](M m) {
          m.put("proc/net/tcp", "  sl\n   0: 010C0A0A:7383 00000000:0000 0A 0\n");
        }) == "fail port_taken");
  CHECK(after("memory.free", [](M m) { m.put("proc/meminfo", "gone\n"); }) == "skipped");
  const Site failed;
  std::filesystem::create_directories(failed.dir / "state");
  REQUIRE(io::write_file_atomic(failed.dir / "state" / "last-failure.json", "{}"));
  CHECK(verdict(failed.options("state.failure")) == "warning last_failure");
}

TEST_CASE("too little memory in the node's budget, and memory that only page cache holds") {
  const Site site;
  preflight::RawOptions raw = site.options("memory.plan");
  CHECK(verdict(raw) == "ok");
  site.machine.put("proc/meminfo",
                   "MemTotal: 125829120 kB\nMemFree: 1048576 kB\nMemAvailable: 120586240 kB\nCached: 119537664 kB\n");
  raw.only = {"memory.free"};
  raw.skip = {};
  // The plan's figure comes from memory.plan, which runs before.
  raw.only.push_back("memory.plan");
  CHECK(verdict(raw) == "warning page_cache");
  site.machine.put("proc/meminfo",
                   "MemTotal: 125829120 kB\nMemFree: 1048576 kB\nMemAvailable: 2097152 kB\nCached: 1048576 kB\n");
  raw.only = {"memory.plan"};
  CHECK(verdict(raw) == "fail memory");
}

TEST_CASE("a download or packing in progress makes the node busy") {
  const Node node;
  preflight::RawOptions raw = node.options();
  raw.only = {"busy.files"};
  raw.common.json = true;
  CHECK(verdict(raw) == "ok");
  const auto lock = io::FileLock::acquire(node.packs / ".dsf-pack-engram.lock");
  REQUIRE(lock);
  CHECK(verdict(raw) == "fail busy");
}
