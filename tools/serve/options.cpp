#include "tools/serve/options.h"

#include <cstdlib>

#include "dsf/base/numeric.h"
#include "dsf/cli/version.h"
#include "dsf/io/file.h"

namespace dsf::serve {
namespace {

namespace fs = std::filesystem;

Result<std::string> read_key(const std::string& path) {
  DSF_TRY(std::string key, io::read_text(path, 4096));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (key.empty())
    return fail(Code::kUsage, path, "the API key file is empty", "write the key into it, or leave --api-key-file out");
  return key;
}

// "off" or a number: what a request gets that says nothing.
Result<tokenizer::Thinking> parse_thinking(const std::string& text, const tokenizer::EffortTable& table) {
  const auto number = parse_i64(text);
  const json::Value value = text == "off" ? json::Value("none") : number ? json::Value(*number) : json::Value(text);
  const auto thinking = tokenizer::parse_effort(value, table);
  if (!thinking)
    return fail(Code::kUsage, "--thinking", thinking.error().what, "give off, a number from 1 to 100, or a name");
  return *thinking;
}

// The checkpoint's own sampling defaults, where it states them (serving.md 5.1).
Result<void> apply_generation_config(const fs::path& model_dir, SamplingParams& sampling) {
  const fs::path path = model_dir / "generation_config.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  DSF_TRY(const std::string text, io::read_text(path, kMiB));
  DSF_TRY(const json::Value doc, json::parse(text, path.string()));
  const json::Cursor top(doc, path.string());
  DSF_TRY(sampling.temperature, top.number_or("temperature", sampling.temperature));
  DSF_TRY(sampling.top_p, top.number_or("top_p", sampling.top_p));
  DSF_TRY(sampling.top_k, top.integer_or("top_k", sampling.top_k, -1, INT32_MAX));
  if (sampling.top_k < 0) sampling.top_k = 0;
  if (!(sampling.temperature >= 0)) return top.fail("temperature must not be negative");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return top.fail("top_p must be in (0, 1]");
  return {};
}

Result<ServiceOptions> make_service_options(const RawOptions& raw) {
  ServiceOptions out;
  const fs::path model_dir = fs::path(raw.model).lexically_normal();
  out.root = (model_dir.has_filename() ? model_dir : model_dir.parent_path()).filename().string();
  out.model_names = raw.names.empty() ? std::vector{out.root} : raw.names;
  DSF_OK(apply_generation_config(model_dir, out.defaults));
  if (raw.temperature >= 0) out.defaults.temperature = raw.temperature;
  if (raw.top_p >= 0) out.defaults.top_p = raw.top_p;
  if (out.defaults.top_p == 0) return fail(Code::kUsage, "--top-p", "must be greater than 0");
  if (!raw.effort_table.empty()) {
    DSF_TRY(const std::string text, io::read_text(raw.effort_table, kMiB));
    DSF_TRY(const json::Value doc, json::parse(text, raw.effort_table));
    DSF_TRY(out.effort, tokenizer::EffortTable::parse(doc, raw.effort_table));
  }
  DSF_TRY(out.thinking, parse_thinking(raw.thinking, out.effort));
  if (!raw.api_key_file.empty()) {
    DSF_TRY(out.api_key, read_key(raw.api_key_file));
  }
  out.developer = raw.developer == "user" ? tokenizer::DeveloperRole::kUser : tokenizer::DeveloperRole::kSystem;
  out.max_reply = raw.max_reply;
  out.deterministic_seed = raw.deterministic_seed;
  out.parse_special = raw.parse_special;
  out.rescue_unclosed_thinking = raw.rescue_unclosed;
  out.keepalive_us = raw.keepalive_us;
  out.queue_timeout_us = raw.queue_timeout_us;
  out.request_timeout_us = raw.request_timeout_us;
  out.version = cli::version_line("dsf-serve");
  return out;
}

Result<ClusterPlan> make_cluster_plan(const RawOptions& raw) {
  ClusterPlan out;
  comm::MembershipFlags flags;
  if (raw.rank >= 0) flags.rank = static_cast<int>(raw.rank);
  if (raw.world_size > 0) flags.world = static_cast<int>(raw.world_size);
  flags.rendezvous = raw.rendezvous;
  DSF_TRY(out.membership, comm::find_membership(flags, [](const char* name) -> std::optional<std::string> {
            const char* value = std::getenv(name);
            return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
          }));
  out.ranks_in_process = static_cast<int>(raw.ranks_in_process);
  if (out.ranks_in_process > 1 && out.membership.world > 1)
    return fail(Code::kUsage, "--ranks-in-process", "does not go with several processes",
                "leave it out, or start one process without --world-size");
  if (raw.speculative > 0 && (out.ranks_in_process > 1 || out.membership.world > 1))
    return fail(Code::kUsage, "--speculative", "works on one rank only", "leave it out");
  out.step_timeout_us = raw.step_timeout_us;
  out.join_timeout_us = raw.join_timeout_us;
  return out;
}

}  // namespace

cli::ToolInfo tool_info() {
  return {"dsf-serve",
          "Serves DeepSeek-V4.1-Flash over the OpenAI HTTP API.",
          {{"dsf-serve --model models/dsv41-exl3 --engram packs/rank0", "serve on http://127.0.0.1:8000"},
           {"dsf-serve --model m --engram e --port 0 --port-file port.txt",
            "any free port, written to port.txt once ready"},
           {"dsf-serve --model m --engram e --backend cuda --device 1", "on the second GPU"},
           {"dsf-serve score --model m --text wiki.txt --json", "perplexity of a text, without serving"}}};
}

void add_flags(cli::Command& command, RawOptions& raw) {
  command.group("Model").option("--model", raw.model, "checkpoint folder: config.json, tokenizer.json, shards", "DIR");
  command.option("--engram", raw.engram, "folder of dsf-pack-engram; without it the checkpoint's own tables", "DIR");
  command.choice("--backend", raw.backend, backend_names(), "what computes");
  command.option("--device", raw.device, "number of the GPU; else LOCAL_RANK, or 0", 0, 255);
  command.choice("--load-format", raw.load_format, {"checkpoint", "dummy"}, "dummy: random weights, only config.json is read");
  command.option("--dummy-experts", raw.dummy_experts, "with dummy weights: experts of a layer; 0 is the model's", 0, 1 << 20);
  command.option("--max-model-len", raw.max_model_len, "positions of one request; 0 is the model's limit", 0,
                 INT32_MAX);
  command.option("--max-num-seqs", raw.max_num_seqs, "requests at once", 1, 64);
  command.option("--prefill-chunk", raw.prefill_chunk, "most tokens of one step", 1, 65536);
  command.flag("--no-graphs", raw.no_graphs, "cuda: launch every kernel of every step, for the same result");
  command.option("--speculative", raw.speculative, "drafts verified in a step, with the same reply; 0 is none", 0, 16);
  command.group("Ranks").option("--rank", raw.rank, "this process's number; else RANK and the like", 0, 1023);
  command.option("--world-size", raw.world_size, "processes that share the model; else WORLD_SIZE", 1, 1024);
  command.option("--rendezvous", raw.rendezvous, "where rank 0 awaits the others; else MASTER_ADDR", "HOST:PORT");
  command.option("--ranks-in-process", raw.ranks_in_process, "ranks as threads of this process", 1, 64);
  command.duration("--step-timeout", raw.step_timeout_us, "longest wait for another rank in a step");
  command.duration("--join-timeout", raw.join_timeout_us, "longest wait for the other ranks at start");
  command.group("HTTP").option("--host", raw.host, "address to listen on", "HOST");
  command.option("--port", raw.port, "port; 0 is any free one", 0, 65535);
  command.option("--port-file", raw.port_file, "gets the port once ready", "FILE");
  command.list("--served-model-name", raw.names, "names to answer to, the first is our own", "NAME");
  command.option("--api-key-file", raw.api_key_file, "file with the key that clients must send", "FILE");
  command.bytes("--max-body", raw.max_body, "largest request body");
  command.option("--max-queue", raw.max_queue, "requests that may wait; more get 429", 0, 100000);
  command.rare_group("Requests").option("--max-reply", raw.max_reply, "cap of max_tokens; 0 is the context", 0, INT32_MAX);
  command.option("--thinking", raw.thinking, "of requests that do not say: off, or effort 1 to 100", "EFFORT");
  command.option("--temperature", raw.temperature, "default; else the checkpoint's", 0, 100);
  command.option("--top-p", raw.top_p, "default; else the checkpoint's", 0, 1);
  command.option("--effort-table", raw.effort_table, "JSON names of reasoning efforts", "FILE");
  command.choice("--developer-role", raw.developer, {"system", "user"}, "how developer messages are rendered");
  command.flag("--deterministic-seed", raw.deterministic_seed, "no seed given: from the prompt alone");
  command.flag("--parse-special", raw.parse_special, "chat text may spell control tokens (parity tests)");
  command.flag("--rescue-unclosed-thinking", raw.rescue_unclosed, "unfinished reasoning becomes the content");
  command.rare_group("Time").duration("--keepalive", raw.keepalive_us, "SSE comments before the first token");
  command.duration("--queue-timeout", raw.queue_timeout_us, "longest wait for a session; 0s is none");
  command.duration("--request-timeout", raw.request_timeout_us, "longest request; 0s is none");
  command.duration("--drain-timeout", raw.drain_timeout_us, "for running requests after SIGTERM");
  command.rare_group("Log").flag("--request-log", raw.request_log, "one JSON line per request on stderr");
  command.common(raw.common, cli::kJobs);
}

Result<ServePlan> make_plan(const RawOptions& raw) {
  ServePlan plan;
  if (raw.model.empty()) return fail(Code::kUsage, "--model", "is required", "give the folder of the checkpoint");
  plan.model_dir = raw.model;
  plan.engram_dir = raw.engram;
  for (const fs::path& dir : {plan.model_dir, plan.engram_dir}) {
    std::error_code ignored;
    if (!dir.empty() && !fs::is_directory(dir, ignored)) return fail(Code::kMissing, dir.string(), "no such folder");
  }
  plan.port_file = raw.port_file;
  plan.http.host = raw.host;
  plan.http.port = static_cast<uint16_t>(raw.port);
  plan.http.max_body_bytes = raw.max_body;
  plan.http.error_body = Service::error_body;
  plan.loop.max_running = static_cast<int>(raw.max_num_seqs);
  plan.loop.max_queue = static_cast<int>(raw.max_queue);
  plan.loop.prefill_chunk = raw.prefill_chunk;
  plan.loop.speculative = raw.speculative;
  plan.engine.backend = raw.backend;
  plan.engine.model_dir = plan.model_dir;
  plan.engine.engram_dir = plan.engram_dir;
  plan.engine.max_model_len = raw.max_model_len;
  plan.engine.max_step_tokens = plan.loop.prefill_chunk;
  plan.engine.max_sessions = plan.loop.max_running;
  plan.engine.threads = raw.common.jobs;
  plan.engine.draft = raw.speculative > 0;
  plan.engine.graphs = !raw.no_graphs;
  plan.engine.dummy = raw.load_format == "dummy";
  plan.engine.dummy_experts = raw.dummy_experts;
  if (raw.dummy_experts != 0 && !plan.engine.dummy)
    return fail(Code::kUsage, "--dummy-experts", "means nothing without --load-format dummy", "leave it out");
  plan.drain_timeout_us = raw.drain_timeout_us;
  DSF_TRY(plan.cluster, make_cluster_plan(raw));
  plan.engine.device = raw.device >= 0 ? static_cast<int>(raw.device) : plan.cluster.membership.local_rank;
  plan.request_log = raw.request_log;
  DSF_TRY(plan.service, make_service_options(raw));
  return plan;
}

}  // namespace dsf::serve
