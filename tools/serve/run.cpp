#include "tools/serve/run.h"

#include <poll.h>

#include <atomic>
#include <cstdio>

#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "tools/serve/dummy_tokenizer.h"
#include "tools/serve/engine/local_ranks.h"
#include "tools/serve/identity.h"

namespace dsf::serve {
namespace {

constexpr int kPollMs = 200;
constexpr int64_t kCanaryUs = 600'000'000;

// Answers 503 until there is a Service: a live port is not a ready server.
class Front {
 public:
  void open(Service* service) { service_ = service; }
  void handle(const http::ServerRequest& request, http::ResponseWriter& out) {
    if (Service* service = service_.load()) return service->handle(request, out);
    const bool health = request.path == "/health" || request.path == "/v1/health";
    const json::Value body = health ? json::Value(json::Object{{"status", "loading"}})
                                    : ApiError{503, "The model is being loaded.", {}, "loading", 5}.body();
    out.send(503, {{"Content-Type", "application/json"}, {"Retry-After", "5"}}, json::dump(body));
  }

 private:
  std::atomic<Service*> service_ = nullptr;
};

struct Text {
  tokenizer::Tokenizer tokenizer;
  tokenizer::ControlIds ids;
};

// With dummy weights any tokenizer will do: the folder's, or one that knows single bytes.
Result<tokenizer::Tokenizer> load_tokenizer(const ServePlan& plan) {
  const std::filesystem::path path = plan.model_dir / "tokenizer.json";
  std::error_code ignored;
  if (plan.engine.dummy && !std::filesystem::exists(path, ignored)) return tokenizer::Tokenizer::parse(byte_tokenizer_json(), "built-in byte tokenizer");
  auto tokenizer = tokenizer::Tokenizer::load(path);
  if (!tokenizer && tokenizer.error().code == Code::kMissing && tokenizer.error().fix.empty()) {
    Error error = tokenizer.error();
    error.fix = "fetch the checkpoint's tokenizer.json";
    return fail(std::move(error));
  }
  return tokenizer;
}

Result<Text> load_text(const ServePlan& plan) {
  DSF_TRY(tokenizer::Tokenizer tokenizer, load_tokenizer(plan));
  DSF_TRY(const tokenizer::ControlIds ids, tokenizer::ControlIds::find(tokenizer));
  return Text{std::move(tokenizer), ids};
}

// What the engine plans and did, as one log line each.
void log_notes(std::string_view what, const Notes& notes) {
  std::string text(what);
  for (const auto& [key, value] : notes) text += (&key == &notes.front().first ? ": " : ", ") + key + " " + value;
  cli::log(cli::Level::kInfo, text);
}

// One greedy token through the whole path, so that a broken model never becomes ready.
Result<void> canary(EngineLoop& loop, const tokenizer::ControlIds& ids) {
  GenerationRequest request;
  request.prompt = {ids[tokenizer::Control::kBos], ids[tokenizer::Control::kUser]};
  request.sampling.temperature = 0;
  DSF_TRY(const std::shared_ptr<Stream> stream, loop.submit(std::move(request)));
  const int64_t deadline_ns = monotonic_ns() + kCanaryUs * 1000;
  while (monotonic_ns() < deadline_ns && !cli::stop_requested()) {
    const Batch batch = stream->wait(kPollMs * 1000);
    if (batch.end && batch.end->reason == EndReason::kFailed) return fail(batch.end->error);
    if (batch.end) return {};
  }
  return fail(Code::kLocal, "canary", "no first token came before the server gave up");
}

// The engine of one rank; comm: of that rank, nullptr when there is one only.
Result<std::unique_ptr<Engine>> open_rank(const ServePlan& plan, comm::Communicator* comm) {
  EngineRequest request = plan.engine;
  request.comm = comm;
  if (plan.cluster.ranks_in_process > 1) {  // a GPU each; instantiating a graph may wait for the other GPU, which waits for this one
    request.device += comm->rank();
    request.graphs = false;
  }
  if (comm == nullptr || comm->rank() == 0) request.note = log_notes;
  return open_engine(request);
}

// What rank 0 serves with: its own engine, or the leader of several.
Result<std::unique_ptr<Engine>> open_all(const ServePlan& plan, comm::Communicator* comm) {
  const LockstepOptions lockstep{.step_timeout_us = plan.cluster.step_timeout_us};
  if (plan.cluster.ranks_in_process > 1)
    return open_local_ranks(
        plan.cluster.ranks_in_process, [&](comm::Communicator& own) { return open_rank(plan, &own); }, lockstep);
  DSF_TRY(std::unique_ptr<Engine> engine, open_rank(plan, comm));
  if (comm == nullptr) return engine;
  DSF_OK(all_loaded(*comm, plan.cluster));
  return std::unique_ptr<Engine>(std::make_unique<Leader>(std::move(engine), *comm, lockstep));
}

// What every rank must have alike.
Result<Facts> facts_of(const ServePlan& plan) {
  Facts facts{{"backend", plan.engine.backend},
              {"max-model-len", std::to_string(plan.engine.max_model_len)},
              {"max-num-seqs", std::to_string(plan.loop.max_running)},
              {"prefill-chunk", std::to_string(plan.loop.prefill_chunk)},
              {"dummy-experts", std::to_string(plan.engine.dummy_experts)}};
  if (!plan.engine.dummy) {
    DSF_TRY(std::string digest, plan_digest(plan.model_dir, plan.cluster.membership.world));
    facts.emplace_back("plan", std::move(digest));
  }
  facts.insert(facts.end(), plan.service.identity.begin(), plan.service.identity.end());
  return facts;
}

Result<std::unique_ptr<comm::Communicator>> join_others(const ServePlan& plan) {
  if (plan.cluster.alone()) return std::unique_ptr<comm::Communicator>();
  DSF_TRY(const Facts facts, facts_of(plan));
  return join_cluster(plan.cluster, facts);
}

// A rank other than 0: no HTTP, no scheduler.
Result<int> run_follower(ServePlan plan) {
  DSF_TRY(plan.service.identity, checkpoint_identity(plan.model_dir));
  DSF_TRY(const std::unique_ptr<comm::Communicator> comm, join_others(plan));
  DSF_TRY(const std::unique_ptr<Engine> engine, open_rank(plan, comm.get()));
  DSF_OK(all_loaded(*comm, plan.cluster));
  return follow_cluster(*engine, *comm, plan.cluster, plan.drain_timeout_us);
}

// Until a signal, or until the engine or another rank (comm, may be nullptr) fails: then with that error.
Result<void> wait_for_the_end(const EngineLoop& loop, const comm::Communicator* comm) {
  while (!cli::stop_requested()) {
    if (comm != nullptr) DSF_OK(comm->check());
    if (loop.state() == EngineLoop::State::kFailed) return fail(loop.failure());
    pollfd fd{cli::stop_fd(), POLLIN, 0};
    poll(&fd, 1, kPollMs);
  }
  return {};
}

Result<int> serve(const ServePlan& plan, const http::Server& server, EngineLoop& loop, const comm::Communicator* comm) {
  if (!plan.port_file.empty()) DSF_OK(io::write_file_atomic(plan.port_file, std::to_string(server.port()) + "\n"));
  cli::log(cli::Level::kInfo, "ready",
           {{"url", server.base_url()},
            {"model", plan.service.model_names.front()},
            {"max_model_len", std::to_string(loop.limits().max_model_len)}});
  if (const auto end = wait_for_the_end(loop, comm); !end) {
    cli::log(cli::Level::kError, "engine failed", {{"error", end.error().line()}});
    return static_cast<int>(end.error().code == Code::kRemote ? Code::kRemote : Code::kBug);
  }
  cli::log(cli::Level::kInfo, "draining",
           {{"requests", std::to_string(loop.counters().running + loop.counters().waiting)}});
  loop.drain();
  if (!loop.wait_idle(plan.drain_timeout_us)) cli::log(cli::Level::kWarn, "drain timeout: ending what still runs");
  return 0;
}

}  // namespace

Result<int> run_server(ServePlan plan) {
  cli::ignore_sigpipe();
  if (plan.cluster.membership.rank > 0) return run_follower(std::move(plan));
  Front front;
  DSF_TRY(const auto server,
          http::Server::listen(plan.http, [&](const http::ServerRequest& request, http::ResponseWriter& out) {
            front.handle(request, out);
          }));
  cli::log(cli::Level::kInfo, "loading", {{"model", plan.model_dir.string()}});
  DSF_TRY(Text text, load_text(plan));
  DSF_TRY(plan.service.identity, checkpoint_identity(plan.model_dir));
  if (const std::string unproven = unproven_weights(plan.model_dir); !unproven.empty())
    cli::log(cli::Level::kWarn, unproven);
  DSF_TRY(const std::unique_ptr<comm::Communicator> comm, join_others(plan));
  DSF_TRY(std::unique_ptr<Engine> engine, open_all(plan, comm.get()));
  if (text.tokenizer.id_limit() > engine->config().vocab_size) {
    return fail(Code::kContent, text.tokenizer.subject(),
                "has ids up to " + std::to_string(text.tokenizer.id_limit() - 1) + ", the model only " +
                    std::to_string(engine->config().vocab_size) + " rows",
                "use the tokenizer of this checkpoint");
  }
  if (plan.request_log) {
    plan.service.log = [](const json::Value& value) {
      const std::string line = json::dump(value) + "\n";
      std::fwrite(line.data(), 1, line.size(), stderr);  // stderr is unbuffered: one line, one write
    };
  }
  if (plan.loop.speculative > 0 && !engine->has_drafter())
    return fail(Code::kUsage, "--speculative", "this checkpoint has no draft blocks, or the backend does not run them",
                "leave it out");
  EngineLoop loop(std::move(engine), plan.loop);
  if (const auto alive = canary(loop, text.ids); !alive) {
    if (cli::stop_requested()) return 0;
    return fail(alive.error());
  }
  Service service(loop, text.tokenizer, text.ids, plan.service);
  front.open(&service);
  const auto code = serve(plan, *server, loop, comm.get());
  loop.stop();
  server->stop();  // no handler is left that could use the service
  if (!plan.port_file.empty()) DSF_OK(io::remove_file(plan.port_file));
  return code;
}

}  // namespace dsf::serve
