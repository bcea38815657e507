#pragma once
// What the handlers of both listeners share, and one request on its way.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "dsf/http/server.h"
#include "dsf/loopback_hub/loopback_hub.h"
#include "repository.h"

namespace dsf::loopback_hub {

class State {
 public:
  explicit State(Options o) : options(std::move(o)), url_lifetime_s(options.url_lifetime_s) {}

  // nullptr when there is no such folder. Repositories stay valid while a caller holds them, also over reload().
  std::shared_ptr<const Repository> repository(const std::string& id);
  std::optional<Fault> take_fault(std::string_view host, const http::ServerRequest& request);
  void record(LogEntry entry);
  std::string sign(std::string_view path, int64_t expires) const;

  const Options options;
  std::string hub_origin, cdn_origin;
  std::atomic<int64_t> url_lifetime_s;
  std::atomic<uint64_t> hub_requests = 0;

  mutable std::mutex mutex;  // guards what follows
  std::map<std::string, std::shared_ptr<const Repository>> repositories;
  struct Rule {
    Fault fault;
    int64_t seen = 0, used = 0;
  };
  std::vector<Rule> rules;
  std::vector<LogEntry> entries;
};

// One request with its fault and its log line. The writer counts what goes out.
struct Call {
  State& state;
  const http::ServerRequest& request;
  http::ResponseWriter& out;
  std::optional<Fault> fault;
  LogEntry log;

  bool faulty(std::string_view action) const { return fault && fault->action == action; }
  void send(int status, http::Headers headers, std::string_view body);
  void send_json(int status, const json::Value& value, http::Headers headers = {});
  // As the Hub does: X-Error-Code, X-Error-Message and a JSON body.
  void send_error(int status, std::string_view code, const std::string& message, http::Headers headers = {});
};

http::Headers hub_headers(State& state);

// Bytes of a file with ranges, and every fault of a transfer. headers: what the caller adds (ETag, X-Repo-Commit...).
void send_file(Call& call, const Repository& repo, const RepoFile& file, http::Headers headers);

void handle_api(Call& call);      // /api/...
void handle_resolve(Call& call);  // /<repo>/resolve/<rev>/<path>, /api/resolve-cache/...
void handle_cdn(Call& call);

// What access rules say to this request; true when it may go on, otherwise the answer has been sent.
bool allowed(Call& call, const std::string& repo_id, const std::shared_ptr<const Repository>& repo);

// Components of a target, split before decoding, so that refs%2Fpr%2F1 is one of them.
std::vector<std::string> split_target(std::string_view target);
std::string query_value(std::string_view query, std::string_view key);

}  // namespace dsf::loopback_hub
