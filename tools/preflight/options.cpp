#include "tools/preflight/options.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "tools/preflight/checks.h"
#include "tools/preflight/machine.h"

namespace dsf::preflight {

cli::ToolInfo tool_info() {
  return {
      "dsf-preflight",
      "Says whether this node can serve: checkpoint, routers, tokens, Engram packs, memory, GPU, ports, network, "
      "settings.",
      {{"dsf-preflight --model model --engram engram --world-size 2 --rank 0", "everything this node needs"},
       {"dsf-preflight --nodes nodes.json --rank 1 --report b.json", "a node of a pair, as its node file describes it"},
       {"dsf-preflight compare a.json b.json", "do the reports of two nodes go together?"}}};
}

void describe(cli::App& app, RawOptions& raw) {
  app.group("What");
  app.option("--model", raw.model, "checkpoint folder: native release or EXL3 pack", "DIR");
  app.option("--engram", raw.engram, "folder of the packed Engram files (default: the tables in the model folder)",
             "DIR");
  app.option("--rank", raw.rank, "this node's rank (default: 0, or by address in the node file)", 0, 4095);
  app.option("--world-size", raw.world_size, "number of ranks (default: 1, or the node file's)", 1, 4096);
  app.option("--nodes", raw.nodes, "node file: paths, memory, address and lanes of every rank", "FILE");
  app.option("--bias-vl", raw.bias_vl, "folder with the image-router biases that a pack has dropped", "DIR");
  app.choice("--images", raw.images, {"on", "off"}, "off: text only, image-router biases may be absent");
  app.group("Memory plan");
  app.choice("--backend", raw.backend, {"auto", "cpu", "cuda"}, "whose memory plan (default: cuda where a device is)");
  app.option("--max-model-len", raw.max_model_len, "positions of one session; 0 is the model's own limit", 0,
             int64_t{1} << 32);
  app.option("--max-sessions", raw.max_sessions, "sessions open at once", 1, 1 << 20);
  app.option("--max-step-tokens", raw.max_step_tokens, "tokens of one step", 1, 1 << 24);
  app.bytes("--memory", raw.memory, "memory to plan for (default: MemAvailable of this machine)");
  app.group("This node");
  app.option("--http-port", raw.http_port, "port of the API; 0 when this rank serves none (default 8000 on rank 0)", 0,
             65535);
  app.option("--url", raw.url, "a server that was started: it must answer", "URL");
  app.group("Which checks");
  app.list("--only", raw.only, "run only this check; may be repeated", "ID");
  app.list("--skip", raw.skip, "leave this check out; may be repeated", "ID");
  app.flag("--deep", raw.deep, "read every packed row, not a sample");
  app.flag("--list-checks", raw.list_checks, "print the ids and end");
  app.flag("--warnings-as-errors", raw.warnings_as_errors, "exit 10 when there are only warnings");
  app.option("--report", raw.report, "write the record here", "FILE");
  app.common(raw.common, cli::kJson);
}

namespace {
Result<void> known(const std::vector<std::string>& ids) {
  for (const std::string& id : ids)
    if (std::none_of(all_checks().begin(), all_checks().end(), [&](const Check& c) { return id == c.id; }))
      return fail(Code::kUsage, id, "is not a check", "see dsf-preflight --list-checks", "usage");
  return {};
}
}  // namespace

namespace {
// The node file fills what the command line leaves out.
Result<void> apply_nodes(const RawOptions& raw, Plan& p) {
  p.nodes_file = raw.nodes;
  DSF_TRY(p.nodes, manifest::load_nodes(p.nodes_file));
  const manifest::Nodes& nodes = *p.nodes;
  if (raw.world_size > 0 && raw.world_size != nodes.world)
    return fail(Code::kUsage, "--world-size",
                std::to_string(raw.world_size) + " given, the node file has " + std::to_string(nodes.world),
                "leave it out", "usage");
  p.world_size = static_cast<int>(nodes.world);
  if (raw.rank < 0) {
    const Machine machine(p.system_root);
    for (const manifest::Node& n : nodes.nodes)
      if (machine.is_local_address(n.address)) p.rank = static_cast<int>(n.rank);
  }
  if (p.rank >= p.world_size) return {};  // make_plan says so
  const manifest::Node& node = nodes.nodes[static_cast<size_t>(p.rank)];
  if (p.model.empty()) p.model = node.model;
  if (p.engram.empty()) p.engram = node.engram;
  p.memory_margin = std::max(p.memory_margin, node.memory_floor);
  p.rendezvous_port = static_cast<uint16_t>(nodes.port);
  p.http_port = p.rank == nodes.http_rank ? nodes.http_port() : uint16_t{0};
  return {};
}
}  // namespace

Result<Plan> make_plan(const RawOptions& raw) {
  Plan p;
  DSF_OK(known(raw.only));
  DSF_OK(known(raw.skip));
  p.system_root = raw.system_root;
  p.model = raw.model;
  p.engram = raw.engram;
  p.bias_vl = raw.bias_vl;
  p.rank = static_cast<int>(std::max<int64_t>(raw.rank, 0));
  p.world_size = static_cast<int>(std::max<int64_t>(raw.world_size, 1));
  const bool cuda = raw.backend == "cuda" || (raw.backend == "auto" && Machine(p.system_root).has_gpu());
  // Below this a unified-memory node stops answering instead of failing an allocation.
  p.memory_margin = cuda ? 4 * kGiB : 256 * kMiB;
  p.http_port = p.rank == 0 ? uint16_t{8000} : uint16_t{0};
  if (!raw.nodes.empty()) DSF_OK(apply_nodes(raw, p));
  if (raw.http_port >= 0) p.http_port = static_cast<uint16_t>(raw.http_port);
  if (p.model.empty())
    return fail(Code::kUsage, "--model", "is required", "pass the checkpoint folder, or --nodes", "usage");
  if (p.rank >= p.world_size)
    return fail(Code::kUsage, "--rank", std::to_string(p.rank) + " is not a rank of " + std::to_string(p.world_size),
                "give 0 to " + std::to_string(p.world_size - 1), "usage");
  p.images = raw.images == "on";
  p.sample_seed = raw.sample_seed;
  p.deep = raw.deep;
  p.memory = {.residence = cuda ? model::Residence::kStored : model::Residence::kExpanded,
              .rank = p.rank,
              .world_size = p.world_size,
              .max_model_len = raw.max_model_len,
              .max_sessions = raw.max_sessions,
              .max_step_tokens = raw.max_step_tokens};
  p.memory_budget = raw.memory;
  p.url = raw.url;
  while (p.url.ends_with('/')) p.url.pop_back();
  p.only = raw.only;
  p.skip = raw.skip;
  p.warnings_as_errors = raw.warnings_as_errors;
  p.json = raw.common.json;
  p.quiet = raw.common.quiet;
  p.report = raw.report;
  return p;
}

}  // namespace dsf::preflight
