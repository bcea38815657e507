#include "tools/bench/runner.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "tools/bench/run_json.h"
#include "tools/bench/scrape.h"

namespace dsf::bench {
namespace {

using json::Value;

constexpr int64_t kQuietAfterFailureMs = 2000;  // without a gauge nobody says when an aborted stream is really gone

http::ConnectionOptions connection_options(const Target& target) {
  http::ConnectionOptions out;
  out.proxy = target.proxy;
  out.verify_tls = !target.insecure;
  return out;
}

// How far apart the releases of a barrier were.
int64_t spread(const std::vector<Request>& requests) {
  int64_t lo = INT64_MAX, hi = INT64_MIN;
  for (const auto& r : requests) {
    if (!r.t.release || r.t.scheduled) continue;
    lo = std::min(lo, *r.t.release);
    hi = std::max(hi, *r.t.release);
  }
  return hi >= lo ? hi - lo : 0;
}

void sleep_ms(int64_t ms) {
  for (int64_t left = ms; left > 0 && !cli::stop_requested(); left -= 50) std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(left, 50)));
}

}  // namespace

Runner::Runner(const Plan& plan)
    : plan_(plan), control_(plan.target), network_(plan.target.base_url, connection_options(plan.target), plan.target.timeouts, monotonic_ns()) {
  network_.set_stop([] { return cli::stop_requested(); }, cli::stop_fd());
  network_.set_new_connections(plan.settings.connections == "new");
}

Result<void> Runner::run() {
  if (plan_.resume) {
    DSF_TRY(before_, read_partial(plan_.out, plan_));
    if (before_.complete) {
      cli::log(cli::Level::kInfo, "the run is complete already", {{"dir", plan_.out.string()}});
      return {};
    }
  }
  DSF_TRY(url_, http::parse_url(plan_.target.base_url));
  DSF_TRY(probe_, probe_server(plan_, control_, network_));
  DSF_OK(open_files());
  LiveView view(network_.live(), planned_requests(), !plan_.quiet);
  view_ = &view;
  DSF_OK(plan_.turns > 0 ? run_sessions() : plan_.rate.kind.empty() ? run_matrix() : run_rate());
  view_ = nullptr;
  return close_files();
}

int64_t Runner::planned_requests() const {
  if (!plan_.rate.kind.empty()) return static_cast<int64_t>(plan_.rate.items.size());
  if (plan_.turns > 0) return plan_.turns * plan_.settings.levels.back();
  int64_t n = 0;
  for (const int64_t c : plan_.settings.levels) n += plan_.settings.requests_at(c);
  return n * plan_.settings.repeats * static_cast<int64_t>(plan_.settings.phases.size() * plan_.settings.thinkings.size());
}

Result<void> Runner::open_files() {
  DSF_OK(io::make_dirs(plan_.out));
  const auto path = plan_.out / "raw.jsonl.zst";
  if (before_.run.is_null()) {
    run_id_ = new_run_id();
    run_json_ = run_json(plan_, probe_, run_id_);
    DSF_TRY(raw_, RawWriter::create(path));
    DSF_OK(raw_->write(json::Object{{"type", "meta"}, {"schema", kRawSchema}, {"run_id", run_id_}, {"created_by", run_json_.find("created_by")->as_string()}}));
    for (const auto& r : probe_.requests) {
      Value record = to_json(r, run_id_);
      record.set("type", "probe");
      DSF_OK(raw_->write(record));
    }
  } else {
    // The same server, or the levels would not belong together.
    if (weight_digests(json::Object{{"server", probe_.server}}) != weight_digests(before_.run)) {
      return fail(Code::kUsage, plan_.out.string(), "the server reports other weights than the interrupted run had", "serve the same, or choose a new --out", "arguments");
    }
    run_json_ = before_.run;
    run_id_ = run_json_.find("run_id")->as_string();
    note_resumed(run_json_, plan_);
    done_ = before_.requests;
    ok_ = before_.ok;
    // Beside the old file first: an interrupted resume must not lose what there was.
    const auto temporary = plan_.out / "raw.jsonl.zst.tmp";
    DSF_TRY(raw_, RawWriter::create(temporary));
    for (const auto& r : before_.records) DSF_OK(raw_->write(r));
    DSF_OK(raw_->end_frame());
    DSF_OK(io::rename_file(temporary, path));
  }
  DSF_OK(raw_->end_frame());
  return io::write_file_atomic(plan_.out / "run.json", json::dump(run_json_, json::Style::kPretty) + "\n");
}

Result<void> Runner::close_files() {
  const std::string state = cli::stop_requested() ? "aborted" : "complete";
  Value end = json::Object{{"type", "end"}, {"state", state}, {"requests", done_}, {"ok", ok_}};
  end.set("signal", cli::stop_requested() ? Value(cli::stop_signal()) : Value());
  DSF_OK(raw_->write(end));
  DSF_OK(raw_->close());
  finish_run_json(run_json_, state);
  return io::write_file_atomic(plan_.out / "run.json", json::dump(run_json_, json::Style::kPretty) + "\n");
}

std::string Runner::request_bytes(const Body& body) const {
  return http_request(url_, url_.path + (plan_.settings.endpoint_kind == "chat" ? "/chat/completions" : "/completions"), body.json, plan_.target.api_key);
}

Request Runner::planned_request(const Job& job, const Body& body, const LevelRecord& level) const {
  const Planned& p = job.planned;
  Request r;
  r.phase = level.phase;
  r.thinking = level.thinking;
  r.repeat = level.repeat;
  r.c = level.c;
  r.slot = p.key.slot;
  r.attempt = level.attempt;
  r.warmup = level.warmup;
  r.id = r.phase + "/" + r.thinking + (r.warmup ? "/warmup" : "/r") + std::to_string(r.repeat) + "/c" + std::to_string(r.c) + "/s" + std::to_string(r.slot) +
         (r.attempt > 0 ? "/a" + std::to_string(r.attempt) : "");
  r.prompt_key = p.key.text();
  r.prompt_sha256 = body.prompt_sha256;
  r.prompt_bytes = body.prompt_bytes;
  r.body_sha256 = body.sha256;
  r.body_norm_sha256 = body.norm_sha256;
  r.max_tokens = job.max_tokens;
  return r;
}

// The level proper: bodies, connections, scrape, release, scrape, records.
Result<Runner::Measured> Runner::measure(const std::vector<Job>& jobs, LevelRecord level, size_t connections) {
  view_->level(level.warmup ? "warmup" : level.phase, level.thinking, level.c, done_);
  Measured out;
  std::vector<Outgoing> outgoing;
  for (const auto& job : jobs) {
    const Body body = make_body(plan_.settings, plan_.target, probe_.features, level.thinking, probe_.features.thinking_style.at(level.thinking), job.planned.prompt, job.max_tokens);
    out.requests.push_back(planned_request(job, body, level));
    outgoing.push_back({request_bytes(body), job.at_ns});
  }
  network_.prepare(connections, http_request(url_, url_.path + "/models", "", plan_.target.api_key));
  level.before = scrape();
  Value start = to_json(level);
  start.set("type", "level_start");
  DSF_OK(raw_->write(start));
  const std::vector<Capture> captures = network_.run(outgoing);
  level.after = scrape();
  const LoopStats& stats = network_.stats();
  level.wall_ns = stats.wall_ns;
  level.cpu_ns = stats.cpu_ns;
  level.lag_max_ns = stats.lag_max_ns;
  for (size_t i = 0; i < out.requests.size(); ++i) {
    out.texts.push_back(assemble(captures[i], out.requests[i]));
    after_assembly(out.requests[i], out.texts.back());
    out.requests[i].ok() ? ++level.ok : ++level.failed;
    DSF_OK(raw_->write(to_json(out.requests[i], run_id_)));
  }
  level.spread_ns = spread(out.requests);
  out.failed = level.failed;
  if (!level.before.empty()) DSF_OK(raw_->write(scrape_json(level, false)));
  if (!level.after.empty()) DSF_OK(raw_->write(scrape_json(level, true)));
  DSF_OK(raw_->write(to_json(level)));
  DSF_OK(raw_->end_frame());
  return out;
}

void Runner::after_assembly(Request& r, const StreamText& text) {
  if (plan_.save_text) r.output.text = text.all;
  if (!r.ok() || r.token_count_source != "chunks" || !probe_.features.tokenize) return;
  if (const auto n = control_.tokenize_text(text.all)) apply_tokenized_count(r, *n);
}

std::map<std::string, double> Runner::scrape() {
  std::map<std::string, double> out;
  if (probe_.metrics_url.empty()) return out;
  const auto response = control_.get(probe_.metrics_url);
  if (!response || response->status != 200) return out;
  for (const auto& [name, value] : parse_metrics(response->body).samples) {
    if (worth_keeping(name)) out[name] = value;
  }
  return out;
}

// The next level starts on a quiet server: idle time, then the server's own word, for 30 s at most.
void Runner::cool_down(bool failures) {
  sleep_ms(plan_.cooldown_ms);
  for (int i = 0; i < 300 && !cli::stop_requested(); ++i) {
    const auto running = running_requests(scrape());
    if (!running && failures) return sleep_ms(kQuietAfterFailureMs);
    if (!running || *running <= 0) return;
    sleep_ms(100);
  }
}

}  // namespace dsf::bench
