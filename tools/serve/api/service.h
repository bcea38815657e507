#pragma once
// The HTTP surface of the server: routes, authentication, and what every endpoint shares. Knows tokens and requests,
// not tensors.
//
// One Service per process; handle() runs on many connection threads at once. It borrows the EngineLoop and owns the
// rest. Everything in Context but the metrics is read-only after construction. Source: serving.md 4.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "dsf/http/server.h"
#include "dsf/tokenizer/prompt.h"
#include "tools/serve/api/api_error.h"
#include "tools/serve/api/metrics.h"
#include "tools/serve/grammar/token_trie.h"
#include "tools/serve/scheduler/engine_loop.h"

namespace dsf::serve {

struct ServiceOptions {
  std::vector<std::string> model_names{"dsf"};  // the first is the one we call ourselves; the others are accepted too
  std::string root;                             // name of the checkpoint, shown by /v1/models
  SamplingParams defaults;                      // what a request does not set
  int64_t max_reply = 0;                        // cap of max_tokens; 0: the context
  bool deterministic_seed = false;              // no seed given: from the prompt alone, not salted per request
  bool parse_special = false;                   // chat text may spell control tokens (parity tests only)
  bool rescue_unclosed_thinking = false;        // not streaming: reasoning that never closed becomes the content
  tokenizer::Thinking thinking;                 // of requests that say nothing
  tokenizer::EffortTable effort = tokenizer::EffortTable::release();
  tokenizer::DeveloperRole developer = tokenizer::DeveloperRole::kSystem;
  int64_t keepalive_us = 15'000'000;                          // SSE comments before the first token
  int64_t queue_timeout_us = 0;                               // longest wait for a session; 0: none
  int64_t request_timeout_us = 0;                             // longest request; 0: none
  std::string api_key;                                        // empty: open
  std::string version;                                        // "dsf-serve 0.1.0 (...)"
  std::vector<std::pair<std::string, std::string>> identity;  // of the files, put before the engine's own
  std::function<void(const json::Value&)> log;                // one object per request; never content
};

// What the endpoints work with.
struct Context {
  EngineLoop& loop;
  tokenizer::Tokenizer tokenizer;
  tokenizer::ControlIds ids;
  ServiceOptions options;
  Metrics metrics;
  int64_t started_ns = 0;  // monotonic
  int64_t created_s = 0;   // wall clock: "created" of the model
  // What is loaded, for records of other tools: shown by /v1/models, /version and /metrics.
  std::vector<std::pair<std::string, std::string>> identity;
  std::string fingerprint;  // names the checkpoint in every reply
  std::shared_ptr<const grammar::TokenTrie> trie;

  int64_t vocab_size() const { return loop.config().vocab_size; }
  int64_t max_model_len() const { return loop.limits().max_model_len; }
};

class Service {
 public:
  Service(EngineLoop& loop, tokenizer::Tokenizer tokenizer, tokenizer::ControlIds ids, ServiceOptions options);
  void handle(const http::ServerRequest& request, http::ResponseWriter& out);
  // For ServerOptions::error_body: the same error object when the HTTP layer refuses a request.
  static http::ErrorBody error_body(int status, std::string_view reason);

 private:
  using Endpoint = void (Service::*)(const http::ServerRequest&, http::ResponseWriter&);
  struct Route {
    std::string_view method, path;
    Endpoint endpoint;
    bool open;  // without the API key
  };
  static const std::vector<Route>& routes();
  bool authorised(const http::ServerRequest& request) const;

  void chat(const http::ServerRequest& request, http::ResponseWriter& out);
  void completions(const http::ServerRequest& request, http::ResponseWriter& out);
  void models(const http::ServerRequest& request, http::ResponseWriter& out);
  void tokenize(const http::ServerRequest& request, http::ResponseWriter& out);
  void detokenize(const http::ServerRequest& request, http::ResponseWriter& out);
  void health(const http::ServerRequest& request, http::ResponseWriter& out);
  void metrics(const http::ServerRequest& request, http::ResponseWriter& out);
  void version(const http::ServerRequest& request, http::ResponseWriter& out);
  void ping(const http::ServerRequest& request, http::ResponseWriter& out);
  json::Value model_object(const std::string& name) const;

  Context context_;
  std::atomic<int64_t> last_request_ns_;
};

// Shared by the endpoints.
void send_json(Context& context, http::ResponseWriter& out, int status, const json::Value& body,
               http::Headers extra = {});
void send_error(Context& context, http::ResponseWriter& out, const ApiError& error);
ApiResult<json::Value> parse_body(const http::ServerRequest& request);
ApiResult<void> check_model(const Context& context, const std::string& model);
std::string random_hex(size_t n_digits);
uint64_t random_u64();

}  // namespace dsf::serve
