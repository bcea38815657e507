#include "dsf/manifest/nodes.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::manifest {
namespace {

using json::Cursor;

constexpr int64_t kMaxWorld = 64;

Result<void> only(const Cursor& c, std::initializer_list<std::string_view> known) {
  if (!c.value().is_object()) return c.fail("object expected");
  for (const auto& [key, value] : c.value().as_object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return c.fail("unknown member " + json::quote(key), "correct its spelling, or remove it");
  return {};
}

// A text that was filled in.
Result<std::string> text_at(const Cursor& c, std::string_view key, bool required) {
  DSF_TRY(std::string text, required ? c.string_at(key) : c.string_or(key, ""));
  if (text.find('<') != std::string::npos || text.find("…") != std::string::npos)
    return c.fail(std::string(key) + " is still a placeholder (" + text + ")", "fill it in");
  if (required && text.empty()) return c.fail(std::string(key) + " is empty", "fill it in");
  return text;
}

Result<Lane> read_lane(const Cursor& c, int64_t world) {
  DSF_OK(only(c, {"netdev", "hca", "gid", "peer"}));
  Lane lane;
  DSF_TRY(lane.netdev, text_at(c, "netdev", true));
  DSF_TRY(lane.hca, text_at(c, "hca", true));
  const json::Value* gid = c.value().find("gid");
  const bool automatic = gid == nullptr || (gid->is_string() && gid->as_string() == "auto");
  if (!automatic) {
    DSF_TRY(lane.gid, c.integer_at("gid", 0, 255));
  }
  DSF_TRY(lane.peer, c.integer_at("peer", 0, world - 1));
  for (const std::string& name : {lane.netdev, lane.hca})
    if (name.find('/') != std::string::npos || name.front() == '.')
      return c.fail(json::quote(name) + " is not a device name");
  return lane;
}

Result<Node> read_node(const Cursor& c, int64_t world) {
  DSF_OK(only(c, {"rank", "ssh", "address", "device", "lanes", "memory", "cpus", "paths"}));
  Node n;
  DSF_TRY(n.rank, c.integer_at("rank", 0, world - 1));
  DSF_TRY(n.ssh, text_at(c, "ssh", false));
  DSF_TRY(n.address, text_at(c, "address", true));
  if (const auto device = c.maybe("device")) {
    DSF_OK(only(*device, {"uuid", "arch"}));
    DSF_TRY(n.device_uuid, text_at(*device, "uuid", false));
    DSF_TRY(n.device_arch, text_at(*device, "arch", false));
  }
  if (const auto lanes = c.maybe("lanes")) {
    DSF_TRY(const auto elements, lanes->elements());
    for (const Cursor& e : elements) {
      DSF_TRY(Lane lane, read_lane(e, world));
      n.lanes.push_back(std::move(lane));
    }
  }
  if (const auto memory = c.maybe("memory")) {
    DSF_OK(only(*memory, {"budget_bytes", "floor_bytes"}));
    constexpr int64_t kMax = int64_t{1} << 50;
    DSF_TRY(const int64_t budget, memory->integer_or("budget_bytes", 0, 0, kMax));
    DSF_TRY(const int64_t floor, memory->integer_or("floor_bytes", 0, 0, kMax));
    n.memory_budget = static_cast<uint64_t>(budget);
    n.memory_floor = static_cast<uint64_t>(floor);
  }
  if (const auto cpus = c.maybe("cpus")) DSF_OK(only(*cpus, {"proxy", "engine", "io"}));
  DSF_TRY(const Cursor paths, c.at("paths"));
  DSF_OK(only(paths, {"model", "engram", "state"}));
  DSF_TRY(n.model, text_at(paths, "model", true));
  DSF_TRY(n.engram, text_at(paths, "engram", false));
  DSF_TRY(n.state, text_at(paths, "state", false));
  return n;
}

Result<void> check_together(const Cursor& c, const Nodes& nodes) {
  std::set<std::string> addresses;
  for (size_t i = 0; i < nodes.nodes.size(); ++i) {
    const Node& n = nodes.nodes[i];
    if (n.rank != static_cast<int64_t>(i)) return c.fail("ranks must run from 0 to world - 1, once each");
    if (!addresses.insert(n.address).second) return c.fail("two nodes have the address " + n.address);
    if (n.lanes.size() != nodes.nodes.front().lanes.size()) return c.fail("nodes have different numbers of lanes");
    for (const Lane& lane : n.lanes) {
      if (lane.peer == n.rank) return c.fail("a lane of rank " + std::to_string(n.rank) + " leads to itself");
      const auto& back = nodes.nodes[static_cast<size_t>(lane.peer)].lanes;
      const auto to = [&](const std::vector<Lane>& lanes, int64_t rank) {
        return std::count_if(lanes.begin(), lanes.end(), [&](const Lane& l) { return l.peer == rank; });
      };
      if (to(back, n.rank) != to(n.lanes, lane.peer))
        return c.fail("lanes between rank " + std::to_string(n.rank) + " and rank " + std::to_string(lane.peer) +
                      " are not the same in both directions");
    }
  }
  return {};
}

}  // namespace

uint16_t Nodes::http_port() const {
  const size_t colon = http_listen.rfind(':');
  const auto number =
      colon == std::string::npos ? std::nullopt : parse_u64(std::string_view(http_listen).substr(colon + 1));
  return number && *number <= 65535 ? static_cast<uint16_t>(*number) : 0;
}

Result<Nodes> parse_nodes(std::string_view text, std::string_view subject) {
  DSF_TRY(const json::Value value, json::parse(text, subject, {.max_depth = 16}));
  const Cursor c(value, std::string(subject), Code::kUsage);
  DSF_TRY(const std::string schema, c.string_at("schema"));
  DSF_TRY(const int64_t v, c.integer_at("v", 1));
  if (schema != kNodesSchema || v > 1)
    return fail(Code::kContent, std::string(subject),
                "is \"" + schema + "\" version " + std::to_string(v) + ", \"dsf.nodes\" version 1 expected",
                "see manifests/schema/nodes-1.schema.json", "schema");
  DSF_OK(only(c, {"schema", "v", "name", "world", "topology", "port", "http", "comm", "nodes"}));
  Nodes out;
  DSF_TRY(out.name, text_at(c, "name", true));
  DSF_TRY(out.world, c.integer_at("world", 1, kMaxWorld));
  DSF_TRY(out.port, c.integer_or("port", out.port, 1, 65535));
  DSF_TRY(const std::string topology, c.string_or("topology", "direct"));
  if (topology != "direct") return c.fail("topology " + json::quote(topology) + " is not supported, \"direct\" is");
  if (const auto http = c.maybe("http")) {
    DSF_OK(only(*http, {"rank", "listen"}));
    DSF_TRY(out.http_rank, http->integer_or("rank", 0, 0, out.world - 1));
    DSF_TRY(out.http_listen, http->string_or("listen", out.http_listen));
    if (out.http_port() == 0) return http->fail("listen needs ADDRESS:PORT");
  }
  if (const auto comm = c.maybe("comm"))
    DSF_OK(only(*comm, {"backend", "flag_mode", "slot_bytes", "cutover_bytes", "wait_ms", "silence_ms"}));
  DSF_TRY(const Cursor list, c.at("nodes"));
  DSF_TRY(const auto elements, list.elements());
  for (const Cursor& e : elements) {
    DSF_TRY(Node n, read_node(e, out.world));
    out.nodes.push_back(std::move(n));
  }
  std::sort(out.nodes.begin(), out.nodes.end(), [](const Node& a, const Node& b) { return a.rank < b.rank; });
  if (static_cast<int64_t>(out.nodes.size()) != out.world)
    return list.fail(std::to_string(out.nodes.size()) + " nodes, world is " + std::to_string(out.world));
  DSF_OK(check_together(list, out));
  return out;
}

Result<Nodes> load_nodes(const std::filesystem::path& path) {
  DSF_TRY(const std::string text, io::read_text(path, kMiB));
  return parse_nodes(text, path.string());
}

}  // namespace dsf::manifest
