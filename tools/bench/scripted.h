#pragma once
// A scripted OpenAI-like server: it plays chunks at known times over real HTTP, so that a benchmark client can be judged against what
// was sent (bench.md 8). Behind `dsf-bench mock` and `dsf-bench selftest`, and every test of the client.
//
// A Script says how one request is answered; a Scenario chooses the script from the request and its number. The time of a chunk counts
// from the arrival of the complete request. The server logs when each chunk was really written, on the same monotonic clock.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/http/server.h"
#include "dsf/json/json.h"

namespace dsf::bench {

struct Chunk {
  enum class What { kBytes, kReset, kClose };
  double at_ms = 0;
  std::string bytes;
  What what = What::kBytes;   // kReset: RST, kClose: close without ending the body
  bool byte_by_byte = false;  // one write, one HTTP chunk, per byte
};

struct Script {
  int status = 200;
  http::Headers headers = {{"Content-Type", "text/event-stream"}};
  std::vector<Chunk> chunks;
  double response_delay_ms = 0;  // before the head
};

// The usual shapes of a token stream, from which most scripts are made.
struct StreamShape {
  int n_tokens = 64;
  int tokens_per_event = 1;
  int first_event_tokens = 1;   // bundled first event when larger
  int reasoning_events = 0;     // that many events carry reasoning before content begins
  int tool_events = 0;          // that many of the last events are tool call deltas
  double first_ms = 50;         // first token event
  double gap_ms = 5;            // between token events
  int prompt_tokens = 463;
  int cached_tokens = 0;
  double role_ms = -1;          // role-only first chunk at that time; < 0: none
  bool usage = true;
  int usage_error = 0;          // added to the completion count that is reported
  bool usage_on_finish = false; // on the finish event instead of an event of its own
  bool continuous_usage = false, token_ids = false;
  bool crlf = false, byte_by_byte = false;
  int events_per_write = 1;     // that many events leave together, at the time of the last one: a server that flushes late
  double comment_every_ms = 0;  // keep-alive comments until the first token
  int stop_after = 0;           // finish "stop" after so many tokens; 0: "length" at n_tokens
  int break_after_event = 0;    // reset after so many token events; 0: never
  int stall_after_event = 0;    // then silence for stall_ms
  double stall_ms = 0;
  int error_after_event = 0;    // an error object inside the stream
  bool done = true;             // "[DONE]"
  int max_tokens = 0;           // cap of the request, 0: none
};
Script make_script(const StreamShape& shape);
// Members as StreamShape names them; unknown ones are kUsage.
Result<StreamShape> shape_from_json(const json::Value& value, std::string_view subject);
// A list of scripts, one a request, in turn; a script is a list of chunks {"at_ms": 5, "bytes": TEXT} or {"at_ms": 5, "json": OBJECT} (an event) or
// {"at_ms": 5, "end": "reset" or "close"}. A list of chunks alone is one script for every request. Errors: kUsage.
Result<std::vector<Script>> scripts_from_json(const json::Value& value, std::string_view subject);

// One played request, for comparison with what a client measured. Times are monotonic nanoseconds.
struct Played {
  std::string path, body;
  int64_t arrived_ns = 0;
  std::vector<int64_t> written_ns;  // one per chunk
  bool client_gone = false;
};

struct ScriptedOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;
  std::string model = "scripted";
  bool strict = false;             // 400 on request members that OpenAI's schema does not know
  std::vector<std::pair<std::string, std::string>> identity;  // digests under "dsf" of /v1/models
  bool metrics = true, tokenize = true;
  bool prefix_cache = false;       // counts a prompt seen before as cached
};

class ScriptedServer {
 public:
  // body: the parsed request; index: 0 for the first streamed request after start.
  using Scenario = std::function<Script(const json::Value& body, int index)>;
  static Result<std::unique_ptr<ScriptedServer>> start(ScriptedOptions options, Scenario scenario);
  ~ScriptedServer();
  std::string base_url() const;  // ends in "/v1"
  uint16_t port() const;
  std::vector<Played> played() const;
  void clear_played();

  struct State;

 private:
  explicit ScriptedServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dsf::bench
