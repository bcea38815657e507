#include "tools/bench/run.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "tools/bench/body.h"
#include "tools/bench/csv.h"
#include "tools/bench/events.h"
#include "tools/bench/live_view.h"
#include "tools/bench/plot.h"
#include "tools/bench/probe.h"
#include "tools/bench/rate.h"
#include "tools/bench/raw_file.h"
#include "tools/bench/run_json.h"
#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

using json::Value;

class Runner {
 public:
  explicit Runner(const Plan& plan)
      : plan_(plan), control_(plan.target), network_(plan.target.base_url, connection_options(plan.target), plan.target.timeouts, monotonic_ns()) {
    network_.set_stop([] { return cli::stop_requested(); }, cli::stop_fd());
  }

  Result<void> run() {
    DSF_TRY(url_, http::parse_url(plan_.target.base_url));
    DSF_TRY(probe_, probe_server(plan_, control_, network_));
    DSF_OK(open_files());
    LiveView view(network_.live(), planned_requests(), !plan_.quiet);
    view_ = &view;
    DSF_OK(plan_.rate.kind.empty() ? run_matrix() : run_rate());
    view_ = nullptr;
    return close_files();
  }

 private:
  static http::ConnectionOptions connection_options(const Target& target) {
    http::ConnectionOptions out;
    out.proxy = target.proxy;
    out.verify_tls = !target.insecure;
    return out;
  }

  int64_t planned_requests() const {
    if (!plan_.rate.kind.empty()) return static_cast<int64_t>(plan_.rate.items.size());
    int64_t n = 0;
    for (const int64_t c : plan_.settings.levels) n += c;
    return n * plan_.settings.repeats * static_cast<int64_t>(plan_.settings.phases.size() * plan_.settings.thinkings.size());
  }

  Result<void> open_files() {
    DSF_OK(io::make_dirs(plan_.out));
    run_id_ = new_run_id();
    run_json_ = run_json(plan_, probe_, run_id_);
    DSF_OK(io::write_file_atomic(plan_.out / "run.json", json::dump(run_json_, json::Style::kPretty) + "\n"));
    DSF_TRY(raw_, RawWriter::create(plan_.out / "raw.jsonl.zst"));
    DSF_OK(raw_->write(json::Object{{"type", "meta"}, {"schema", kRawSchema}, {"run_id", run_id_}, {"created_by", run_json_.find("created_by")->as_string()}}));
    for (const auto& r : probe_.requests) {
      Value record = to_json(r, run_id_);
      record.set("type", "probe");
      DSF_OK(raw_->write(record));
    }
    return raw_->end_frame();
  }

  Result<void> close_files() {
    const std::string state = cli::stop_requested() ? "aborted" : "complete";
    Value end = json::Object{{"type", "end"}, {"state", state}, {"requests", done_}, {"ok", ok_}};
    end.set("signal", cli::stop_requested() ? Value(cli::stop_signal()) : Value());
    DSF_OK(raw_->write(end));
    DSF_OK(raw_->close());
    finish_run_json(run_json_, state);
    return io::write_file_atomic(plan_.out / "run.json", json::dump(run_json_, json::Style::kPretty) + "\n");
  }

  Result<void> run_matrix() {
    for (const auto& thinking : plan_.settings.thinkings) {
      for (const auto& phase : plan_.settings.phases) {
        if (cli::stop_requested()) return {};
        DSF_OK(run_pass(phase, thinking));
      }
    }
    return {};
  }

  Result<void> run_pass(const std::string& phase, const std::string& thinking) {
    if (!plan_.target.flush_path.empty()) {
      const auto flushed = control_.post(control_.root() + plan_.target.flush_path, Value::object());
      if (!flushed || flushed->status / 100 != 2) cli::log(cli::Level::kWarn, "the server did not flush its cache", {{"path", plan_.target.flush_path}});
    }
    if (plan_.settings.warmup) {
      for (const auto& level : plan_warmup(plan_.settings, thinking)) DSF_OK(run_level(level, phase, thinking, 0, true));
    }
    for (int64_t repeat = 0; repeat < plan_.settings.repeats; ++repeat) {
      const std::vector<Level> levels = plan_pass(plan_.settings, phase, thinking, repeat);
      for (const auto& level : levels) {
        if (cli::stop_requested()) return {};
        DSF_OK(run_level(level, phase, thinking, repeat, false));
        cool_down();
      }
      if (!cli::stop_requested()) DSF_OK(check_tokens(levels, phase, thinking, repeat));
    }
    return {};
  }

  Request planned_request(const Planned& p, const Body& body, const std::string& phase, const std::string& thinking, int64_t repeat, bool warmup) const {
    Request r;
    r.phase = phase;
    r.thinking = thinking;
    r.repeat = repeat;
    r.c = p.key.c;
    r.slot = p.key.slot;
    r.warmup = warmup;
    r.id = phase + "/" + thinking + (warmup ? "/warmup" : "/r" + std::to_string(repeat)) + "/c" + std::to_string(r.c) + "/s" + std::to_string(r.slot);
    r.prompt_key = p.key.text();
    r.prompt_sha256 = body.prompt_sha256;
    r.prompt_bytes = body.prompt_bytes;
    r.body_sha256 = body.sha256;
    r.body_norm_sha256 = body.norm_sha256;
    r.max_tokens = plan_.settings.max_tokens(phase);
    return r;
  }

  Body body_for(const std::string& prompt, const std::string& thinking, int64_t max_tokens) const {
    return make_body(plan_.settings, plan_.target, probe_.features, thinking, probe_.features.thinking_style.at(thinking), prompt, max_tokens);
  }

  std::string completions_path() const { return url_.path + (plan_.settings.endpoint_kind == "chat" ? "/chat/completions" : "/completions"); }
  std::string request_bytes(const Body& body) const { return http_request(url_, completions_path(), body.json, plan_.target.api_key); }
  std::string ping() const { return http_request(url_, url_.path + "/models", "", plan_.target.api_key); }

  Result<void> run_level(const Level& level, const std::string& phase, const std::string& thinking, int64_t repeat, bool warmup) {
    view_->level(warmup ? "warmup" : phase, thinking, level.c, done_);
    std::vector<Request> requests;
    std::vector<Outgoing> outgoing;
    for (const auto& p : level.requests) {
      const Body body = body_for(p.text, thinking, plan_.settings.max_tokens(phase));
      requests.push_back(planned_request(p, body, phase, thinking, repeat, warmup));
      outgoing.push_back({request_bytes(body), std::nullopt});
    }
    LevelRecord record;
    record.phase = phase;
    record.thinking = thinking;
    record.repeat = repeat;
    record.c = level.c;
    record.warmup = warmup;
    return measure(requests, outgoing, record);
  }

  // The level proper: connections, scrape, release, scrape, records.
  Result<void> measure(std::vector<Request>& requests, const std::vector<Outgoing>& outgoing, LevelRecord& record) {
    network_.prepare(connections_for(outgoing), ping());
    record.before = scrape();
    Value start = to_json(record);
    start.set("type", "level_start");
    DSF_OK(raw_->write(start));
    const std::vector<Capture> captures = network_.run(outgoing);
    record.after = scrape();
    const LoopStats& stats = network_.stats();
    record.wall_ns = stats.wall_ns;
    record.cpu_ns = stats.cpu_ns;
    record.lag_max_ns = stats.lag_max_ns;
    for (size_t i = 0; i < requests.size(); ++i) {
      const StreamText text = assemble(captures[i], requests[i]);
      after_assembly(requests[i], text);
      requests[i].ok() ? ++record.ok : ++record.failed;
      DSF_OK(raw_->write(to_json(requests[i], run_id_)));
    }
    record.spread_ns = spread(requests);
    if (!record.warmup) {
      done_ += static_cast<int64_t>(requests.size());
      ok_ += record.ok;
    }
    if (!record.before.empty()) DSF_OK(raw_->write(scrape_json(record, false)));
    if (!record.after.empty()) DSF_OK(raw_->write(scrape_json(record, true)));
    DSF_OK(raw_->write(to_json(record)));
    return raw_->end_frame();
  }

  size_t connections_for(const std::vector<Outgoing>& outgoing) const {
    return plan_.rate.kind.empty() ? outgoing.size() : std::min(outgoing.size(), static_cast<size_t>(plan_.rate.max_connections));
  }

  void after_assembly(Request& r, const StreamText& text) {
    if (plan_.save_text) r.output.text = text.all;
    if (!r.ok() || r.token_count_source != "chunks" || !probe_.features.tokenize) return;
    if (const auto n = control_.tokenize_text(text.all)) apply_tokenized_count(r, *n);
  }

  static int64_t spread(const std::vector<Request>& requests) {
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    for (const auto& r : requests) {
      if (!r.t.release || r.t.scheduled) continue;
      lo = std::min(lo, *r.t.release);
      hi = std::max(hi, *r.t.release);
    }
    return hi >= lo ? hi - lo : 0;
  }

  std::map<std::string, double> scrape() {
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
  void cool_down() {
    sleep_ms(plan_.cooldown_ms);
    for (int i = 0; i < 300 && !cli::stop_requested(); ++i) {
      const auto running = running_requests(scrape());
      if (!running || *running <= 0) return;
      sleep_ms(100);
    }
  }

  static void sleep_ms(int64_t ms) {
    for (int64_t left = ms; left > 0 && !cli::stop_requested(); left -= 50) std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(left, 50)));
  }

  // Prompt tokens as reported against the server's own tokenizer, once per prompt, after the pass (bench.md 2.7).
  Result<void> check_tokens(const std::vector<Level>& levels, const std::string& phase, const std::string& thinking, int64_t repeat) {
    TokenCheck check{phase, thinking, repeat, "unverified", "the server has no /tokenize for chats"};
    if (probe_.features.tokenize) {
      DSF_TRY(const RawFile raw, read_raw(plan_.out / "raw.jsonl.zst"));
      std::map<std::pair<int64_t, int64_t>, int64_t> reported;
      for (const auto& record : raw.records) {
        if (record.find("type")->as_string() != "request") continue;
        DSF_TRY(const Request r, request_from_json(record, "raw.jsonl.zst"));
        if (!r.warmup && r.ok() && r.phase == phase && r.thinking == thinking && r.repeat == repeat && r.usage.prompt) reported[{r.c, r.slot}] = *r.usage.prompt;
      }
      compare_tokens(levels, thinking, reported, check);
    }
    DSF_OK(raw_->write(to_json(check)));
    return raw_->end_frame();
  }

  void compare_tokens(const std::vector<Level>& levels, const std::string& thinking, const std::map<std::pair<int64_t, int64_t>, int64_t>& reported, TokenCheck& check) {
    std::optional<int64_t> offset;
    bool constant = true;
    std::string example;
    for (const auto& level : levels) {
      for (const auto& p : level.requests) {
        const auto it = reported.find({p.key.c, p.key.slot});
        if (it == reported.end()) continue;
        const auto n = control_.tokenize_chat(p.text, thinking);
        if (!n) return;
        const int64_t difference = it->second - *n;
        if (!offset) offset = difference;
        if (difference != *offset) constant = false;
        if (difference != 0) example = "usage says " + std::to_string(it->second) + ", /tokenize " + std::to_string(*n) + " for " + p.key.text();
      }
    }
    if (!offset) return;
    check.result = !constant ? "count_mismatch" : *offset == 0 ? "verified" : "verified_offset";
    check.detail = example;
  }

  // Requests at given times, all in one level (bench.md 5, open loop).
  Result<void> run_rate() {
    const std::string& thinking = plan_.settings.thinkings.front();
    std::vector<Request> requests;
    std::vector<Outgoing> outgoing;
    int64_t slot = 0;
    for (const auto& item : plan_.rate.items) {
      Planned p;
      p.key = {plan_.settings.seed, plan_.settings.input_lines, "rate", thinking, 1, 0, slot++};
      p.text = item.prompt.empty() ? prompt_text(p.key) : item.prompt;
      const int64_t cap = item.output_tokens > 0 ? item.output_tokens : plan_.settings.output_tokens;
      const Body body = body_for(p.text, thinking, cap);
      requests.push_back(planned_request(p, body, "rate", thinking, 0, false));
      requests.back().max_tokens = cap;
      outgoing.push_back({request_bytes(body), item.at_ns});
    }
    LevelRecord record;
    record.phase = "rate";
    record.thinking = thinking;
    return measure(requests, outgoing, record);
  }

  const Plan& plan_;
  Control control_;
  Network network_;
  http::Url url_;
  Probe probe_;
  std::unique_ptr<RawWriter> raw_;
  LiveView* view_ = nullptr;
  Value run_json_;
  std::string run_id_;
  int64_t done_ = 0, ok_ = 0;
};

Result<void> check_out(const std::filesystem::path& out) {
  std::error_code ignored;
  if (out.empty()) return fail(Code::kUsage, "--out", "a directory for the results is needed", "add --out DIR");
  if (!std::filesystem::exists(out, ignored)) return {};
  if (std::filesystem::is_directory(out, ignored) && std::filesystem::is_empty(out, ignored)) return {};
  return fail(Code::kUsage, out.string(), "the output directory is not empty", "name a new one: results are never overwritten", "output_exists");
}

Result<void> write_sums(const std::filesystem::path& dir, const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    DSF_TRY(const codec::Digest digest, codec::sha256_file(dir / name));
    text += digest.hex() + "  " + name + "\n";
  }
  return io::write_file_atomic(dir / "SHA256SUMS", text);
}

}  // namespace

Result<Outcome> write_derived(const std::filesystem::path& dir) {
  DSF_TRY(const RunData data, load_run(dir));
  DSF_TRY(const Summary summary, summarize(data));
  Outcome out;
  out.summary = to_json(summary);
  std::vector<std::string> names = {"run.json", "raw.jsonl.zst"};
  const auto write = [&](const std::string& name, const std::string& text) {
    names.push_back(name);
    return io::write_file_atomic(dir / name, text);
  };
  out.table = data.run.find("rate") != nullptr ? rate_table(data) : run_table(summary);
  DSF_OK(write("summary.json", json::dump(out.summary, json::Style::kPretty) + "\n"));
  DSF_OK(write("table.md", out.table));
  DSF_OK(write("matrix.csv", matrix_csv({&summary})));
  DSF_OK(write("requests.csv", requests_csv(data)));
  if (!summary.passes.empty()) {
    DSF_OK(io::make_dirs(dir / "plots"));
    DSF_OK(write("plots/decode.svg", plot_svg({&summary}, "decode")));
    DSF_OK(write("plots/prefill.svg", plot_svg({&summary}, "prefill")));
    DSF_OK(write("plots/data.tsv", plot_tsv({&summary})));
  }
  DSF_OK(write_sums(dir, names));
  out.code = exit_code(summary.reasons);
  return out;
}

Result<Outcome> run_plan(const Plan& plan) {
  if (!prompt_selftest()) return fail(Code::kBug, "prompt generator", "its test vectors do not hold in this build", "report it with --version");
  DSF_OK(check_out(plan.out));
  if (plan.rate.kind.empty()) DSF_OK(check_distinct(plan.settings));
  DSF_OK(Runner(plan).run());
  return write_derived(plan.out);
}

}  // namespace dsf::bench
