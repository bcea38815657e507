// node.* and link.*: the node file against this machine, and the cable's four ends as /sys shows them. Source:
// engram.md 8.7, cluster.md 1.5, 3, 4.6, gb10.md 5.
#include <algorithm>

#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

constexpr double kMinGbps = 100;    // a half of the cable is 100 to 200 Gb/s
constexpr uint64_t kMinMtu = 4200;  // below it RoCE falls to 1024-byte packets

bool no_lanes(Context& c, Outcome& out) {
  if (c.node() == nullptr)
    Context::skip(out, "needs --nodes");
  else if (c.node()->lanes.empty())
    Context::skip(out, "the node file names no lanes");
  else
    return false;
  return true;
}

std::string lane_name(const manifest::Lane& lane) { return lane.netdev + "/" + lane.hca; }

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

// The entry that a queue pair would use: the configured index, or the RoCE v2 entry of this netdev with one of our
// addresses.
const Machine::Gid* usable(const std::vector<Machine::Gid>& gids, const manifest::Lane& lane, const Machine& machine) {
  const auto it = std::find_if(gids.begin(), gids.end(), [&](const Machine::Gid& g) {
    if (lane.gid >= 0) return g.index == lane.gid;
    return g.type == "RoCE v2" && g.netdev == lane.netdev && !g.zero() && machine.is_local_address(g.address);
  });
  return it == gids.end() ? nullptr : &*it;
}

void judge_gid(const std::string& name, const Machine::Gid& g, const manifest::Lane& lane, Outcome& out) {
  const std::string entry = name + ": GID " + std::to_string(g.index);
  const char* fix = "set \"gid\" to \"auto\", or to the index of the RoCE v2 entry of this netdev's address";
  if (g.zero())
    out.add({Status::kFail, "gid", entry + " is empty", fix});
  else if (g.type != "RoCE v2")
    out.add({Status::kFail, "gid",
             entry + " is " + (g.type.empty() ? "of unknown type" : g.type) + ", RoCE v2 is needed", fix});
  else if (g.netdev != lane.netdev)
    out.add({Status::kFail, "gid", entry + " belongs to " + g.netdev, fix});
}

}  // namespace

void check_node_file(Context& c, Outcome& out) {
  if (c.plan.nodes_file.empty()) return Context::skip(out, "no --nodes");
  const manifest::Node& n = *c.node();
  c.read(c.plan.nodes_file);
  c.facts["node"] = c.plan.nodes->name + "/" + std::to_string(n.rank);
  out.summary = "rank " + std::to_string(n.rank) + " of " + std::to_string(c.plan.nodes->world) + ", " + n.address;
}

void check_node_address(Context& c, Outcome& out) {
  if (c.node() == nullptr) return Context::skip(out, "needs --nodes");
  const std::string& address = c.node()->address;
  if (c.machine.is_local_address(address)) {
    out.summary = address + " is an address of this machine";
    return;
  }
  const auto other = std::find_if(c.plan.nodes->nodes.begin(), c.plan.nodes->nodes.end(),
                                  [&](const manifest::Node& n) { return c.machine.is_local_address(n.address); });
  const std::string hint = other == c.plan.nodes->nodes.end() ? "bring its interface up, or correct the node file"
                                                              : "this machine is rank " + std::to_string(other->rank) +
                                                                    ": pass --rank " + std::to_string(other->rank);
  out.add(
      {Status::kFail, "address", address + ": is not an address of this machine, the peers would never meet", hint});
}

void check_link_state(Context& c, Outcome& out) {
  if (no_lanes(c, out)) return;
  for (const manifest::Lane& lane : c.node()->lanes) {
    const Machine::Port p = c.machine.port(lane);
    const std::string name = lane_name(lane);
    c.facts["link_" + lane.hca] = joined({p.state, p.rate, "mtu", p.mtu ? std::to_string(*p.mtu) : "?"});
    if (!p.present) {
      out.add({Status::kFail, "no_hca", name + ": there is no RDMA device " + lane.hca,
               "load mlx5_ib, or correct the node file"});
      continue;
    }
    if (!p.netdev_belongs)
      out.add({Status::kFail, "netdev", name + ": " + lane.netdev + " is not the netdev of " + lane.hca,
               "correct the node file"});
    if (p.state.find("ACTIVE") == std::string::npos)
      out.add({Status::kFail, "port_down", name + ": port 1 is \"" + p.state + "\", ACTIVE is needed",
               "check the cable and bring " + lane.netdev + " up"});
    if (p.link_layer != "Ethernet")
      out.add({Status::kWarning, "link_layer", name + ": link layer is \"" + p.link_layer + "\", Ethernet expected",
               "set the port to Ethernet"});
  }
  out.summary = std::to_string(c.node()->lanes.size()) + " lanes";
}

void check_link_speed(Context& c, Outcome& out) {
  if (no_lanes(c, out)) return;
  std::vector<std::string> rates;
  for (const manifest::Lane& lane : c.node()->lanes) {
    const Machine::Port p = c.machine.port(lane);
    if (!p.present) continue;  // link.state says so
    rates.push_back(p.rate.empty() ? "?" : p.rate);
    const std::string name = lane_name(lane);
    if (p.rate_gbps() > 0 && p.rate_gbps() < kMinGbps)
      out.add({Status::kFail, "rate", name + ": runs at " + p.rate,
               "check the cable, or take the power away from both nodes"});
    if (!p.pcie_width.empty() && !p.pcie_max_width.empty() &&
        (p.pcie_width != p.pcie_max_width || p.pcie_speed != p.pcie_max_speed))
      out.add({Status::kWarning, "pcie",
               name + ": PCIe x" + p.pcie_width + " at " + p.pcie_speed + ", x" + p.pcie_max_width + " at " +
                   p.pcie_max_speed + " is possible",
               "update the firmware of this node"});
  }
  out.summary = joined(rates);
  if (!rates.empty())
    out.add({Status::kNote, "not_measured", "link: the rates are what the ports report, no bytes were moved",
             "measure with ib_write_bw: a degraded adapter reports full speed"});
}

void check_link_mtu(Context& c, Outcome& out) {
  if (no_lanes(c, out)) return;
  std::vector<std::string> mtus;
  for (const manifest::Lane& lane : c.node()->lanes) {
    const auto mtu = c.machine.port(lane).mtu;
    mtus.push_back(mtu ? std::to_string(*mtu) : "?");
    if (mtu && *mtu < kMinMtu)
      out.add({Status::kWarning, "mtu",
               lane_name(lane) + ": MTU " + std::to_string(*mtu) + " leaves RoCE at 1024-byte packets",
               "set MTU 9000 on both ends (ip link set " + lane.netdev + " mtu 9000)"});
    else if (!mtu)
      out.add({Status::kFail, "no_netdev", lane_name(lane) + ": there is no interface " + lane.netdev,
               "correct the node file"});
  }
  out.summary = joined(mtus);
}

void check_link_gid(Context& c, Outcome& out) {
  if (no_lanes(c, out)) return;
  std::vector<std::string> used;
  for (const manifest::Lane& lane : c.node()->lanes) {
    const std::string name = lane_name(lane);
    const std::vector<Machine::Gid> gids = c.machine.gids(lane.hca);
    const Machine::Gid* gid = usable(gids, lane, c.machine);
    if (gid == nullptr) {
      out.add({Status::kFail, "gid", name + ": has no usable RoCE v2 GID, connections would fail with errno 61",
               "give " + lane.netdev + " its static address"});
      continue;
    }
    judge_gid(name, *gid, lane, out);
    used.push_back(lane.hca + "=" + std::to_string(gid->index));
  }
  out.summary = joined(used);
}

void check_link_errors(Context& c, Outcome& out) {
  if (no_lanes(c, out)) return;
  for (const manifest::Lane& lane : c.node()->lanes) {
    const auto counters = c.machine.error_counters(lane.hca);
    if (!counters.empty())
      out.add({Status::kNote, "counters",
               lane_name(lane) + ": counted errors since the driver was loaded: " + joined(counters),
               "look whether they grow while serving"});
  }
  out.summary = out.findings.empty() ? "no errors counted" : "errors counted";
}

}  // namespace dsf::preflight
