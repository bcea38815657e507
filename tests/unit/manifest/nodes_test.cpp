#include "dsf/manifest/nodes.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::manifest;

namespace {
std::string example() {
  return *io::read_text(test::golden() / ".." / ".." / "manifests" / "nodes" / "pair.example.json");
}
std::string with(const std::string& from, const std::string& to) {
  std::string text = example();
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  return text.replace(at, from.size(), to);
}
Error refused(const std::string& text) {
  const auto nodes = parse_nodes(text, "nodes.json");
  REQUIRE(!nodes);
  return nodes.error();
}
}  // namespace

TEST_CASE("the example of a pair parses, node by node") {
  const auto nodes = parse_nodes(example(), "nodes.json");
  REQUIRE_MESSAGE(nodes, nodes.error().line());
  CHECK(nodes->world == 2);
  CHECK(nodes->port == 29571);
  CHECK(nodes->http_port() == 8000);
  REQUIRE(nodes->nodes.size() == 2);
  const Node& worker = nodes->nodes[1];
  CHECK(worker.address == "10.12.1.2");
  CHECK(worker.device_arch == "sm_121");
  CHECK(worker.memory_budget == 110595407872);
  CHECK(worker.memory_floor == uint64_t{4} << 30);
  CHECK(worker.model == "/srv/dsf/model");
  REQUIRE(worker.lanes.size() == 2);
  CHECK(worker.lanes[1].netdev == "enP2p1s0f1np1");
  CHECK(worker.lanes[1].hca == "roceP2p1s0f1");
  CHECK(worker.lanes[1].gid == -1);
  CHECK(worker.lanes[1].peer == 0);
}

TEST_CASE("typos, placeholders and nodes that do not fit together are refused, with the member's path") {
  CHECK(refused(with("\"budget_bytes\"", "\"budget_byte\""))
            .line()
            .find("nodes[0].memory: unknown member \"budget_byte\"") != std::string::npos);
  CHECK(refused(with("10.12.1.1", "<address>")).what.find("placeholder") != std::string::npos);
  CHECK(refused(with("\"rank\": 1,", "\"rank\": 0,")).what.find("once each") != std::string::npos);
  CHECK(refused(with("10.12.1.2", "10.12.1.1")).what.find("two nodes have the address") != std::string::npos);
  CHECK(refused(with("\"gid\": \"auto\"", "\"gid\": 300")).code == Code::kUsage);
  CHECK(refused(with("enp1s0f0np0", "../etc")).what.find("not a device name") != std::string::npos);
  CHECK(refused(with("\"peer\": 1}", "\"peer\": 0}")).what.find("leads to itself") != std::string::npos);
  CHECK(refused(with("\"world\": 2", "\"world\": 3")).code == Code::kUsage);
  CHECK(refused(with("\"v\": 1", "\"v\": 2")).code == Code::kContent);
  CHECK(refused(with("127.0.0.1:8000", "127.0.0.1")).what.find("ADDRESS:PORT") != std::string::npos);
  CHECK(refused("{").code == Code::kContent);
  CHECK(load_nodes("/nonexistent/nodes.json").error().code == Code::kMissing);
}
