#pragma once
// The node file of a pair: rank, address, device, network lanes, memory budget and paths of every node (schema
// "dsf.nodes", version 1; JSON Schema in manifests/schema/nodes-1.schema.json). The same file lies on all nodes and
// holds no secrets.
//
// Plain values; any thread. Unknown members and placeholders ("<...>") are errors: a typo must not become a default,
// and a template must not be started. Source: cluster.md 4.6.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::manifest {

inline constexpr std::string_view kNodesSchema = "dsf.nodes";

// One network function of the cable: a netdev, its RDMA device, and who is at the other end.
struct Lane {
  std::string netdev, hca;
  int64_t gid = -1;  // index in the GID table; -1: "auto", found by the netdev's address
  int64_t peer = 0;  // rank
};

struct Node {
  int64_t rank = 0;
  std::string ssh;                       // user@host for tools; may be empty
  std::string address;                   // of the link, IPv4 or IPv6
  std::string device_uuid, device_arch;  // may be empty: not checked
  std::vector<Lane> lanes;
  uint64_t memory_budget = 0;                  // bytes; 0: what the machine has
  uint64_t memory_floor = 0;                   // bytes that must stay free
  std::filesystem::path model, engram, state;  // engram, state: may be empty
};

struct Nodes {
  std::string name;
  int64_t world = 1;
  int64_t port = 29571;  // rendezvous, on the address of rank 0
  int64_t http_rank = 0;
  std::string http_listen = "127.0.0.1:8000";
  std::vector<Node> nodes;  // by rank

  uint16_t http_port() const;
};

// Checks, too, that ranks run from 0 once each, addresses differ, lanes are equal in number and name peers that name
// them. Errors: kUsage (malformed, with the path of the member), kContent (another schema or version), kMissing (no
// file).
Result<Nodes> parse_nodes(std::string_view text, std::string_view subject);
Result<Nodes> load_nodes(const std::filesystem::path& path);

}  // namespace dsf::manifest
