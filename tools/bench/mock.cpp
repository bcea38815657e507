#include "tools/bench/mock.h"

#include <poll.h>

#include <iostream>

#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "tools/bench/scripted.h"

namespace dsf::bench {
namespace {

// The request decides the cap, and whether counts were asked for; the shape decides the rest.
Script answer(StreamShape shape, const json::Value& body) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const json::Value* cap = body.find(name);
    if (cap != nullptr) shape.max_tokens = static_cast<int>(cap->to_i64().value_or(0));
  }
  const json::Value* stream_options = body.find("stream_options");
  const json::Value* usage = stream_options == nullptr ? nullptr : stream_options->find("include_usage");
  shape.usage = shape.usage && usage != nullptr && usage->is_bool() && usage->as_bool();
  return make_script(shape);
}

Result<ScriptedServer::Scenario> scenario_of(const MockOptions& o) {
  if (!o.script.empty()) {
    DSF_TRY(const std::string text, io::read_text(o.script, uint64_t{64} << 20));
    DSF_TRY(const json::Value value, json::parse(text, o.script));
    DSF_TRY(const std::vector<Script> scripts, scripts_from_json(value, o.script));
    return [scripts](const json::Value&, int index) { return scripts[static_cast<size_t>(index) % scripts.size()]; };
  }
  std::string text = o.shape;
  if (text.starts_with('@')) {
    DSF_TRY(text, io::read_text(o.shape.substr(1), 1 << 20));
  }
  DSF_TRY(const json::Value value, json::parse(text, "--shape"));
  DSF_TRY(const StreamShape shape, shape_from_json(value, "--shape"));
  return [shape](const json::Value& body, int) { return answer(shape, body); };
}

}  // namespace

void add_mock_flags(cli::Command& c, MockOptions& o) {
  c.option("--host", o.host, "address to listen on")
      .option("--port", o.port, "port; 0 takes a free one", 0, 65535)
      .option("--port-file", o.port_file, "file that gets the port", "FILE")
      .option("--model", o.model, "served model id", "ID")
      .option("--shape", o.shape, "stream shape as a JSON object, or @FILE", "JSON")
      .option("--script", o.script, "JSON list of scripts, one a request, in turn", "FILE")
      .option("--identity", o.identity, "digest to report in /v1/models, as checkpoint_sha256", "HEX")
      .flag("--strict", o.strict, "answer 400 to request members that OpenAI's schema does not know")
      .flag("--prefix-cache", o.prefix_cache, "count repeated prompts as cached in /metrics");
}

Result<int> run_mock(const MockOptions& o) {
  DSF_TRY(const ScriptedServer::Scenario scenario, scenario_of(o));
  ScriptedOptions options;
  options.host = o.host;
  options.port = static_cast<uint16_t>(o.port);
  options.model = o.model;
  options.strict = o.strict;
  options.prefix_cache = o.prefix_cache;
  if (!o.identity.empty()) options.identity = {{"checkpoint_sha256", o.identity}};
  cli::install_stop_signals();
  DSF_TRY(const auto server, ScriptedServer::start(options, scenario));
  if (!o.port_file.empty()) DSF_OK(io::write_file_atomic(o.port_file, std::to_string(server->port()) + "\n"));
  std::cout << server->base_url() << std::endl;
  pollfd fd{cli::stop_fd(), POLLIN, 0};
  while (!cli::stop_requested()) poll(&fd, 1, 1000);
  return 0;
}

}  // namespace dsf::bench
