#include "tools/bench/selftest.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/cli/version.h"
#include "tools/bench/body.h"
#include "tools/bench/events.h"
#include "tools/bench/metrics.h"
#include "tools/bench/network.h"
#include "tools/bench/prompts.h"
#include "tools/bench/table.h"
#include "tools/bench/vectors.h"

namespace dsf::bench {
namespace {

constexpr double kExactRelative = 1e-9;
constexpr double kMaxCpuFraction = 0.30, kMaxP50Us = 100, kMaxP99Us = 1000;  // bench.md 4.1

int64_t thread_cpu_ns() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
}

std::string number(const std::optional<double>& v) { return v ? json::format_double(*v) : std::string("nothing"); }

SelftestCheck judge(const std::string& where, const Expect& e, const std::vector<Request>& requests, double tolerance) {
  const auto got = e.get(requests);
  SelftestCheck out{where + ": " + e.name, number(got) + ", want " + json::format_double(e.want), false, e.what != Expect::What::kExact};
  out.ok = got && std::abs(*got - e.want) <= tolerance;
  return out;
}

// A rate over span_ms whose two ends may each be late by t.
double loopback_tolerance(const Expect& e, double t) {
  if (e.what == Expect::What::kTime) return t;
  if (e.what == Expect::What::kRate) return std::abs(e.want) * 2 * t / e.span_ms;
  return std::abs(e.want) * kExactRelative;
}

// Vector E: the byte stream of A in every form that a server or a network may give it.
std::vector<SelftestCheck> check_cuttings() {
  const std::string bytes = made::bytes_of(made::vector_a()), crlf = made::replaced(bytes, "\n", "\r\n");
  const auto in_reads = [](const std::string& b, const std::vector<size_t>& sizes) { return made::request_of(made::capture_split(b, sizes), 16); };
  const std::string want = made::facts(made::request_of(made::capture_of(made::vector_a()), 16));
  std::vector<size_t> inside_line_ends;
  for (size_t at = 0, cr = crlf.find('\r'); cr != std::string::npos; at = cr + 1, cr = crlf.find('\r', at)) inside_line_ends.push_back(cr + 1 - at);
  const auto check = [&](const char* name, const Request& r, bool with_comments = true) {
    const std::string got = made::facts(r, with_comments);
    return SelftestCheck{std::string("E: ") + name, got == want ? "equal" : got, got == want, false};
  };
  return {check("a byte a read", in_reads(bytes, std::vector<size_t>(bytes.size(), 1))), check("one read", in_reads(bytes, {bytes.size()})),
          check("CRLF cut in two", in_reads(crlf, inside_line_ends)), check("data: without a space", in_reads(made::replaced(bytes, "data: ", "data:"), {})),
          check("comments between", in_reads(made::replaced(bytes, "\n\n", "\n\n: ping\n\n"), {}), false),
          check("a character cut in two", in_reads(bytes, {bytes.find("\xF0\x9F") + 2}))};
}

// Keeps this thread on one core while it lives; core < 0 does nothing.
class CoreGuard {
 public:
  explicit CoreGuard(int core) : active_(core >= 0 && sched_getaffinity(0, sizeof before_, &before_) == 0) {
    if (!active_) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(core), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~CoreGuard() {
    if (active_) sched_setaffinity(0, sizeof before_, &before_);
  }
  CoreGuard(const CoreGuard&) = delete;
  CoreGuard& operator=(const CoreGuard&) = delete;

 private:
  cpu_set_t before_{};
  bool active_;
};

// One client, one server, in one process. scripts[i] answers request i.
class Loopback {
 public:
  static Result<std::unique_ptr<Loopback>> start(std::vector<Script> scripts) {
    auto out = std::unique_ptr<Loopback>(new Loopback(std::move(scripts)));
    DSF_TRY(out->server_, ScriptedServer::start({}, [raw = out.get()](const json::Value& body, int) {
              const json::Value* seed = body.find("seed");
              return raw->scripts_.at(static_cast<size_t>(seed == nullptr ? 0 : seed->to_i64().value_or(0)));
            }));
    return out;
  }

  // Releases request i release_ms[i] after the start, all together when the list is empty.
  std::vector<Capture> play(const std::vector<double>& release_ms, int core = -1) {
    const CoreGuard pinned(core);  // the server's threads are children of its acceptor, so they stay free
    epoch_ns_ = monotonic_ns();
    Network network(server_->base_url(), {}, {}, epoch_ns_);
    network.prepare(scripts_.size(), "");
    const auto url = http::parse_url(server_->base_url());
    std::vector<Outgoing> requests;
    for (size_t i = 0; i < scripts_.size(); ++i) {
      const std::string body = R"({"model":"scripted","stream":true,"messages":[],"seed":)" + std::to_string(i) + "}";
      requests.push_back({http_request(*url, "/v1/chat/completions", body, ""), std::nullopt});
      if (!release_ms.empty()) requests.back().scheduled_ns = static_cast<int64_t>(release_ms[i] * 1e6);
    }
    const int64_t cpu = thread_cpu_ns();
    auto captures = network.run(requests);
    cpu_ns_ = thread_cpu_ns() - cpu;
    stats_ = network.stats();
    return captures;
  }

  std::vector<Played> played() const { return server_->played(); }
  const LoopStats& stats() const { return stats_; }
  int64_t cpu_ns() const { return cpu_ns_; }
  int64_t epoch_ns() const { return epoch_ns_; }

 private:
  explicit Loopback(std::vector<Script> scripts) : scripts_(std::move(scripts)) {}
  std::vector<Script> scripts_;
  std::unique_ptr<ScriptedServer> server_;
  LoopStats stats_;
  int64_t cpu_ns_ = 0, epoch_ns_ = 0;
};

Result<void> loopback_vector(const Vector& v, double tolerance_ms, std::vector<SelftestCheck>& out) {
  std::vector<Script> scripts;
  std::vector<double> release_ms;
  for (const auto& stream : v.streams) {
    scripts.emplace_back();
    for (const auto& piece : stream.pieces) scripts.back().chunks.push_back({piece.at_ms - stream.release_ms, piece.bytes, Chunk::What::kBytes, false});
    release_ms.push_back(stream.release_ms);
  }
  DSF_TRY(const auto loopback, Loopback::start(std::move(scripts)));
  const auto captures = loopback->play(release_ms);
  std::vector<Request> requests;
  for (size_t i = 0; i < captures.size(); ++i) {
    requests.push_back(made::request_of(captures[i], v.streams[i].max_tokens));
    const Request& r = requests.back();
    out.push_back({v.name + " over loopback: status", std::string(name_of(r.status)) + " " + r.error, r.ok(), false});
  }
  for (const auto& e : v.expects) out.push_back(judge(v.name + " over loopback", e, requests, loopback_tolerance(e, tolerance_ms)));
  return {};
}

// What the client saw of one stream against what the server wrote.
void compare_stream(const Request& r, const Played& played, int64_t events_sent, int64_t epoch_ns, LoadReport& out) {
  const auto& written = played.written_ns;
  out.events_sent += events_sent;
  out.events_seen += static_cast<int64_t>(r.events.size());
  const RequestMetrics m = request_metrics(r);
  if (m.ttft_ms) out.ttft_ms.push_back(*m.ttft_ms);
  if (m.decode) out.rate.push_back(*m.decode);
  if (r.events.size() != written.size()) return;
  size_t first = SIZE_MAX, last = 0;
  for (size_t i = 0; i < written.size(); ++i) {
    out.late_us.push_back(static_cast<double>(r.events[i].t + epoch_ns - written[i]) / 1e3);
    if (!is_token(r.events[i].kind)) continue;
    first = std::min(first, i);
    last = i;
  }
  if (first == SIZE_MAX || last == first) return;
  const double written_ttft_ms = static_cast<double>(written[first] - (*r.t.release + epoch_ns)) / 1e6;
  out.ttft_error_ms.push_back(m.ttft_ms.value_or(0) - written_ttft_ms);
  if (m.decode) out.rate_error.push_back(static_cast<double>(written[last] - written[first]) / static_cast<double>(r.events[last].t - r.events[first].t) - 1);
}

SelftestCheck timed(std::string name, double value, double limit, const char* unit) {
  return {std::move(name), format_number(value, 1) + " " + unit + ", at most " + format_number(limit, 0), value <= limit, true};
}

Result<void> check_load(double seconds, std::vector<SelftestCheck>& out) {
  StreamShape shape;
  shape.first_ms = 50;
  shape.gap_ms = 1;
  shape.n_tokens = static_cast<int>(1000 * seconds);
  DSF_TRY(const LoadReport load, measure_load(shape, 8));
  out.push_back({"load: no event lost", std::to_string(load.events_seen) + " of " + std::to_string(load.events_sent), load.events_seen == load.events_sent, false});
  out.push_back(timed("load: 8 streams of 1000 events/s, share of a core", load.cpu_fraction() * 100, kMaxCpuFraction * 100, "%"));
  out.push_back(timed("load: stamp after write, p50", quantile(load.late_us, 0.5).value_or(1e9), kMaxP50Us, "us"));
  out.push_back(timed("load: stamp after write, p99", quantile(load.late_us, 0.99).value_or(1e9), kMaxP99Us, "us"));
  shape.gap_ms = 0.4;
  shape.n_tokens = static_cast<int>(2500 * seconds / 4);
  DSF_TRY(const LoadReport fast, measure_load(shape, 8));
  out.push_back({"load: 20000 events/s sustained", format_number(fast.events_per_s(), 0) + " events/s, " + std::to_string(fast.events_seen) + " of " + std::to_string(fast.events_sent),
                 fast.events_seen == fast.events_sent && fast.events_per_s() >= 18'000, true});
  return {};
}

}  // namespace

std::vector<SelftestCheck> check_in_memory() {
  std::vector<SelftestCheck> out = {{"prompt vectors", "two published hashes", prompt_selftest(), false}};
  for (const auto& v : published_vectors()) {
    std::vector<Request> requests;
    for (const auto& stream : v.streams) requests.push_back(made::request_of(made::capture_of(stream.pieces, stream.release_ms), stream.max_tokens));
    for (const auto& e : v.expects) {
      out.push_back(judge(v.name + " in memory", e, requests, std::abs(e.want) * kExactRelative));
      out.back().timed = false;
    }
  }
  for (auto& check : check_cuttings()) out.push_back(std::move(check));
  return out;
}

Result<std::vector<SelftestCheck>> check_loopback(double tolerance_ms) {
  std::vector<SelftestCheck> out;
  for (const auto& v : published_vectors()) {
    if (!v.streams.empty()) DSF_OK(loopback_vector(v, tolerance_ms, out));
  }
  return out;
}

Result<LoadReport> measure_load(const StreamShape& shape, size_t n_streams, int client_core) {
  DSF_TRY(const auto loopback, Loopback::start(std::vector<Script>(n_streams, make_script(shape))));
  const auto captures = loopback->play({}, client_core);
  StreamShape one_by_one = shape;
  one_by_one.events_per_write = 1;
  const auto events_sent = static_cast<int64_t>(make_script(one_by_one).chunks.size());
  LoadReport out;
  out.wall_ns = loopback->stats().wall_ns;
  out.reads = loopback->stats().reads;
  out.lag_max_ns = loopback->stats().lag_max_ns;
  out.thread_cpu_ns = loopback->cpu_ns();
  std::vector<Played> played = loopback->played();  // a stream is noted after its last byte, which the client may see first
  for (int wait = 0; wait < 1000 && played.size() < n_streams; ++wait, played = loopback->played()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (size_t i = 0; i < captures.size(); ++i) {
    const std::string tag = "\"seed\":" + std::to_string(i) + "}";
    const auto it = std::find_if(played.begin(), played.end(), [&](const Played& p) { return p.body.ends_with(tag); });
    if (it == played.end()) return fail(Code::kLocal, "selftest", "the loopback server did not see request " + std::to_string(i));
    compare_stream(made::request_of(captures[i], shape.n_tokens), *it, events_sent, loopback->epoch_ns(), out);
  }
  return out;
}

bool SelftestReport::ok() const {
  return std::all_of(checks.begin(), checks.end(), [](const SelftestCheck& c) { return c.ok; });
}

Result<SelftestReport> selftest(const SelftestOptions& options) {
  SelftestReport out{check_in_memory()};
  DSF_TRY(const auto loopback, check_loopback(options.tolerance_ms));
  out.checks.insert(out.checks.end(), loopback.begin(), loopback.end());
  DSF_OK(check_load(options.seconds, out.checks));
  return out;
}

json::Value to_json(const SelftestReport& report) {
  json::Array checks;
  for (const auto& c : report.checks) checks.push_back(json::Object{{"name", c.name}, {"detail", c.detail}, {"ok", c.ok}, {"timed", c.timed}});
  return json::Object{{"schema", "bench.selftest/1"}, {"v", 1}, {"created_by", cli::tool_id("dsf-bench")}, {"ok", report.ok()}, {"checks", std::move(checks)}};
}

}  // namespace dsf::bench
