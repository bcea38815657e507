// dsf-scripted-server: plays token streams at known times, for judging benchmark clients. A developer tool.
#include <poll.h>

#include <iostream>

#include "dsf/cli/app.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "dsf/test/scripted.h"

namespace {

using namespace dsf;

struct Options {
  std::string host = "127.0.0.1", model = "scripted", shape = "{}", identity;
  int64_t port = 0;
  bool strict = false, prefix_cache = false;
};

// The request decides the cap, and whether per-event counts were asked for; the shape decides the rest.
test::Script answer(test::StreamShape shape, const json::Value& body) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const json::Value* cap = body.find(name);
    if (cap != nullptr) shape.max_tokens = static_cast<int>(cap->to_i64().value_or(0));
  }
  const json::Value* stream_options = body.find("stream_options");
  const json::Value* usage = stream_options == nullptr ? nullptr : stream_options->find("include_usage");
  shape.usage = shape.usage && usage != nullptr && usage->is_bool() && usage->as_bool();
  return make_script(shape);
}

Result<int> run(cli::Args args) {
  Options o;
  cli::App app({"dsf-scripted-server", "Plays token streams at known times over HTTP, to judge benchmark clients.",
                {{"dsf-scripted-server --port 8099 --shape '{\"first_ms\":100,\"gap_ms\":10}'", "a steady stream"}}});
  app.option("--host", o.host, "address to listen on")
      .option("--port", o.port, "port; 0 takes a free one", 0, 65535)
      .option("--model", o.model, "served model id")
      .option("--shape", o.shape, "stream shape as a JSON object, or @FILE", "JSON")
      .option("--identity", o.identity, "digest to report in /v1/models, as checkpoint_sha256", "HEX")
      .flag("--strict", o.strict, "answer 400 to request members that OpenAI's schema does not know")
      .flag("--prefix-cache", o.prefix_cache, "count repeated prompts as cached in /metrics");
  DSF_TRY(const auto exit_code, app.parse(args));
  if (exit_code) return *exit_code;
  std::string text = o.shape;
  if (text.starts_with('@')) {
    DSF_TRY(text, io::read_text(o.shape.substr(1), 1 << 20));
  }
  DSF_TRY(const json::Value shape_json, json::parse(text, "--shape"));
  DSF_TRY(const test::StreamShape shape, test::shape_from_json(shape_json, "--shape"));
  cli::install_stop_signals();
  cli::ignore_sigpipe();
  test::ScriptedOptions options;
  options.host = o.host;
  options.port = static_cast<uint16_t>(o.port);
  options.model = o.model;
  options.strict = o.strict;
  options.prefix_cache = o.prefix_cache;
  if (!o.identity.empty()) options.identity = {{"checkpoint_sha256", o.identity}};
  DSF_TRY(const auto server, test::ScriptedServer::start(options, [shape](const json::Value& body, int) { return answer(shape, body); }));
  std::cout << server->base_url() << std::endl;
  pollfd fd{cli::stop_fd(), POLLIN, 0};
  while (!cli::stop_requested()) poll(&fd, 1, 1000);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return dsf::cli::run_main(argc, argv, run); }
