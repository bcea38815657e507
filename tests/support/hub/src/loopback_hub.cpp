#include "dsf/loopback_hub/loopback_hub.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "state.h"

namespace dsf::loopback_hub {

using json::Value;

std::shared_ptr<const Repository> State::repository(const std::string& id) {
  const std::lock_guard lock(mutex);
  auto& slot = repositories[id];
  if (!slot) {
    auto scanned = scan_repository(options.root, id, options.lfs_from_bytes);
    if (!scanned) {
      repositories.erase(id);
      return nullptr;
    }
    slot = std::make_shared<const Repository>(std::move(*scanned));
  }
  return slot;
}

std::optional<Fault> State::take_fault(std::string_view host, const http::ServerRequest& request) {
  const std::lock_guard lock(mutex);
  for (Rule& rule : rules) {
    const Fault& f = rule.fault;
    const bool match = (f.host.empty() || f.host == host) && (f.method.empty() || f.method == request.method) &&
                       request.path.find(f.path_contains) != std::string::npos &&
                       request.header("range").find(f.range_contains) != std::string_view::npos;
    if (!match || (f.times >= 0 && rule.used >= f.times) || ++rule.seen < f.nth) continue;
    ++rule.used;
    return f;
  }
  return std::nullopt;
}

void State::record(LogEntry entry) {
  const std::lock_guard lock(mutex);
  entries.push_back(std::move(entry));
}

std::string State::sign(std::string_view path, int64_t expires) const {
  return codec::sha256("loopback secret\n" + std::string(path) + "\n" + std::to_string(expires)).hex();
}

http::Headers hub_headers(State& state) {
  const uint64_t n = ++state.hub_requests;
  constexpr uint64_t kQuota = 100'000;  // a test Hub never limits by itself; the rate fault does
  return {{"X-Request-Id", "loopback-" + std::to_string(n)},
          {"RateLimit", "\"resolvers\";r=" + std::to_string(kQuota - std::min(n, kQuota)) + ";t=300"},
          {"RateLimit-Policy", "\"fixed window\";\"resolvers\";q=" + std::to_string(kQuota) + ";w=300"}};
}

void Call::send(int status, http::Headers headers, std::string_view body) {
  log.status = status;
  log.bytes = request.method == "HEAD" ? 0 : body.size();
  out.send(status, headers, body);
}

void Call::send_json(int status, const Value& value, http::Headers headers) {
  for (auto& h : hub_headers(state)) headers.push_back(std::move(h));
  headers.emplace_back("Content-Type", "application/json; charset=utf-8");
  send(status, std::move(headers), json::dump(value));
}

void Call::send_error(int status, std::string_view code, const std::string& message, http::Headers headers) {
  if (!code.empty()) headers.emplace_back("X-Error-Code", code);
  headers.emplace_back("X-Error-Message", message);
  Value v = Value::object();
  v.set("error", message);
  send_json(status, v, std::move(headers));
}

bool allowed(Call& call, const std::string& repo_id, const std::shared_ptr<const Repository>& repo) {
  const bool anonymous = call.log.authorization.empty();
  const bool known = call.log.authorization == "Bearer " + call.state.options.token;
  if (!anonymous && !known) {
    call.send_error(401, "", "Invalid credentials in Authorization header");
  } else if (!repo || (repo->is_private && !known)) {
    // The Hub does not tell an anonymous caller whether a repository is missing or private.
    call.send_error(anonymous ? 401 : 404, "RepoNotFound", "Repository not found: " + repo_id);
  } else if (repo->disabled) {
    call.send_error(403, "", "Access to this resource is disabled.");
  } else if (!repo->gated.empty() && !known && !call.request.target.starts_with("/api/models/")) {
    call.send_error(anonymous ? 401 : 403, "GatedRepo",
                    "Access to model " + repo_id + " is restricted. You must be authenticated to access it.");
  } else {
    return true;
  }
  return false;
}

std::vector<std::string> split_target(std::string_view target) {
  target = target.substr(0, target.find('?'));
  std::vector<std::string> parts;
  while (!target.empty()) {
    target.remove_prefix(1);  // the slash
    const size_t end = std::min(target.find('/'), target.size());
    if (end > 0) parts.push_back(http::percent_decode(target.substr(0, end)));
    target.remove_prefix(end);
  }
  return parts;
}

std::string query_value(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=')
      return http::percent_decode(pair.substr(key.size() + 1));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

Result<Fault> fault_from(const Value& value) {
  const json::Cursor root(value, "fault", Code::kUsage);
  Fault f;
  DSF_TRY(f.action, root.string_at("action"));
  DSF_TRY(f.host, root.string_or("host", ""));
  DSF_TRY(f.path_contains, root.string_or("path_contains", ""));
  DSF_TRY(f.method, root.string_or("method", ""));
  DSF_TRY(f.range_contains, root.string_or("range_contains", ""));
  DSF_TRY(f.nth, root.integer_or("nth", 0));
  DSF_TRY(f.times, root.integer_or("times", -1));
  DSF_TRY(f.n, root.integer_or("n", 0, 0));
  DSF_TRY(f.text, root.string_or("text", ""));
  return f;
}

namespace {

// Faults that replace the whole answer, on either host.
bool answer_by_fault(Call& call) {
  if (call.faulty("status")) {
    http::Headers headers;
    if (!call.fault->text.empty()) headers.emplace_back("Retry-After", call.fault->text);
    call.send(static_cast<int>(call.fault->n), std::move(headers), "fault");
  } else if (call.faulty("rate")) {
    http::Headers headers = {{"RateLimit", "\"resolvers\";r=0;t=" + std::to_string(call.fault->n)}};
    if (!call.fault->text.empty()) headers = {{"Retry-After", call.fault->text}};
    call.send(429, std::move(headers), "rate limited");
  } else {
    return false;
  }
  return true;
}

Value log_value(const LogEntry& e) {
  Value v = Value::object();
  v.set("host", e.host);
  v.set("method", e.method);
  v.set("target", e.target);
  v.set("range", e.range);
  v.set("authorization", !e.authorization.empty());
  v.set("user_agent", e.user_agent);
  v.set("status", e.status);
  v.set("bytes", e.bytes);
  return v;
}

class Impl : public LoopbackHub {
 public:
  explicit Impl(Options options) : state_(std::move(options)) {}
  ~Impl() override { stop(); }

  Result<void> listen() {
    const std::lock_guard lock(state_.mutex);  // requests wait for the origins
    http::ServerOptions cdn;
    cdn.host = state_.options.cdn_host;
    cdn.port = state_.options.cdn_port;
    DSF_TRY(cdn_, http::Server::listen(
                      cdn, [this](const http::ServerRequest& r, http::ResponseWriter& w) { handle("cdn", r, w); }));
    state_.cdn_origin = cdn_->base_url();
    http::ServerOptions hub;
    hub.port = state_.options.port;
    DSF_TRY(hub_, http::Server::listen(
                      hub, [this](const http::ServerRequest& r, http::ResponseWriter& w) { handle("hub", r, w); }));
    state_.hub_origin = hub_->base_url();
    return {};
  }

  std::string endpoint() const override { return state_.hub_origin; }
  std::string cdn_origin() const override { return state_.cdn_origin; }
  Result<std::string> commit_of(const std::string& repo) override {
    const auto r = state_.repository(repo);
    if (!r) return fail(Code::kMissing, repo, "no such repository");
    return r->commit;
  }
  void add_fault(Fault fault) override {
    const std::lock_guard lock(state_.mutex);
    state_.rules.push_back({std::move(fault)});
  }
  void clear_faults() override {
    const std::lock_guard lock(state_.mutex);
    state_.rules.clear();
  }
  std::vector<LogEntry> log() const override {
    const std::lock_guard lock(state_.mutex);
    return state_.entries;
  }
  void clear_log() override {
    const std::lock_guard lock(state_.mutex);
    state_.entries.clear();
  }
  void reload() override {
    const std::lock_guard lock(state_.mutex);
    state_.repositories.clear();
  }
  void set_url_lifetime(int64_t seconds) override { state_.url_lifetime_s = seconds; }
  void stop() override {
    if (hub_) hub_->stop();
    if (cdn_) cdn_->stop();
  }

 private:
  void handle(const char* host, const http::ServerRequest& received, http::ResponseWriter& out) {
    http::ServerRequest request = received;
    // The absolute form of a request to a proxy: this server then plays the proxy for every host.
    if (const size_t scheme = request.target.find("://");
        scheme != std::string::npos && scheme < request.target.find('/'))
      request.target.erase(0, std::min(request.target.find('/', scheme + 3), request.target.size()));
    Call call{state_, request, out, state_.take_fault(host, request), {}};
    call.log = {host,
                request.method,
                request.target,
                std::string(request.header("range")),
                std::string(request.header("authorization")),
                std::string(request.header("user-agent")),
                0,
                0,
                std::string(request.header("if-range"))};
    if (request.path.starts_with("/__")) return control(call);
    if (!answer_by_fault(call)) {
      if (std::string_view(host) == "cdn") {
        handle_cdn(call);
      } else if (request.target.starts_with("/api/resolve-cache/") ||
                 request.target.find("/resolve/") != std::string::npos) {
        handle_resolve(call);
      } else {
        handle_api(call);
      }
    }
    state_.record(std::move(call.log));
  }

  // Faults and the log over HTTP, for tests in other languages and for people.
  void control(Call& call) {
    if (call.request.path == "/__log") {
      Value out = Value::array();
      for (const LogEntry& e : log()) out.push(log_value(e));
      if (call.request.method == "DELETE") clear_log();
      return call.send_json(200, out);
    }
    if (call.request.path == "/__reload") {
      reload();
      return call.send(204, {}, "");
    }
    if (call.request.path != "/__fault") return call.send_error(404, "", "Not found");
    if (call.request.method == "DELETE") {
      clear_faults();
      return call.send(204, {}, "");
    }
    const auto value = json::parse(call.request.body, "fault list");
    if (!value || !value->is_array()) return call.send_error(400, "", "an array of rules is expected");
    for (const Value& v : value->as_array()) {
      auto fault = fault_from(v);
      if (!fault) return call.send_error(400, "", fault.error().line());
      add_fault(std::move(*fault));
    }
    call.send(204, {}, "");
  }

  State state_;
  std::unique_ptr<http::Server> hub_, cdn_;
};

}  // namespace

Result<std::unique_ptr<LoopbackHub>> LoopbackHub::start(Options options) {
  auto hub = std::make_unique<Impl>(std::move(options));
  DSF_OK(hub->listen());
  return std::unique_ptr<LoopbackHub>(std::move(hub));
}

}  // namespace dsf::loopback_hub
