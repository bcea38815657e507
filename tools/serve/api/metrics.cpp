#include "tools/serve/api/metrics.h"

#include <algorithm>
#include <cmath>

#include "dsf/json/json.h"

namespace dsf::serve {
namespace {

std::vector<double> latency_bounds() {
  return {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> ttft_bounds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}
std::vector<double> token_bounds() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
}

// 1, 2, 5, 10, 20, ... up to the release's context.
std::vector<double> count_bounds() {
  std::vector<double> out;
  for (double decade = 1; decade <= 1e6; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) out.push_back(decade * step);
  }
  return out;
}

std::string number(double value) {
  return std::nearbyint(value) == value && std::abs(value) < 1e15 ? std::to_string(static_cast<int64_t>(value))
                                                                  : json::format_double(value);
}

class Writer {
 public:
  explicit Writer(std::string labels) : labels_(std::move(labels)) {}
  void head(const std::string& name, const std::string& type, const std::string& help) {
    out.append("# HELP ")
        .append(name)
        .append(" ")
        .append(help)
        .append("\n# TYPE ")
        .append(name)
        .append(" ")
        .append(type)
        .append("\n");
  }
  void line(const std::string& name, double value, const std::string& extra = {}) {
    out.append(name)
        .append("{")
        .append(labels_)
        .append(extra.empty() ? "" : ",")
        .append(extra)
        .append("} ")
        .append(number(value))
        .append("\n");
  }
  void one(const std::string& name, const std::string& type, const std::string& help, double value) {
    head(name, type, help);
    line(name, value);
  }
  void histogram(const std::string& name, const std::string& help, const Histogram& h) {
    head(name, "histogram", help);
    h.write(out, name, labels_);
  }
  std::string out;

 private:
  std::string labels_;
};

std::string label_name(std::string_view key) {
  std::string out;
  for (const char c : key) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

double seconds(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns < from_ns ? 0 : static_cast<double>(to_ns - from_ns) / 1e9;
}

}  // namespace

void Histogram::add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  ++counts_[static_cast<size_t>(at)];
  sum_ += value;
}

void Histogram::write(std::string& out, const std::string& name, const std::string& labels) const {
  int64_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < bounds_.size() ? json::format_double(bounds_[i]) : "+Inf";
    out.append(name)
        .append("_bucket{")
        .append(labels)
        .append(",le=\"")
        .append(bound)
        .append("\"} ")
        .append(std::to_string(total))
        .append("\n");
  }
  out.append(name).append("_sum{").append(labels).append("} ").append(number(sum_)).append("\n");
  out.append(name).append("_count{").append(labels).append("} ").append(std::to_string(total)).append("\n");
}

std::string metric_label(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

Metrics::Metrics()
    : ttft_(ttft_bounds()),
      gap_(token_bounds()),
      per_token_(token_bounds()),
      e2e_(latency_bounds()),
      queue_(latency_bounds()),
      prefill_(latency_bounds()),
      decode_(latency_bounds()),
      inference_(latency_bounds()),
      prompt_(count_bounds()),
      generated_(count_bounds()),
      max_tokens_(count_bounds()) {}

void Metrics::request(int status) {
  const std::lock_guard lock(mutex_);
  ++by_status_[status];
}

int64_t Metrics::requests() const {
  const std::lock_guard lock(mutex_);
  int64_t n = 0;
  for (const auto& [status, count] : by_status_) n += count;
  return n;
}

int64_t Metrics::errors() const {
  const std::lock_guard lock(mutex_);
  int64_t n = 0;
  for (const auto& [status, count] : by_status_) n += status >= 500 ? count : 0;
  const auto failed = by_reason_.find("error");
  return n + (failed == by_reason_.end() ? 0 : failed->second);
}

void Metrics::generation(const GenerationRecord& r) {
  const std::lock_guard lock(mutex_);
  ++by_reason_[r.finished_reason];
  unclosed_thinking_ += r.unclosed_thinking ? 1 : 0;
  tool_parse_failures_ += r.tool_parse_failures;
  markup_in_content_ += r.markup_in_content ? 1 : 0;
  text_after_calls_ += r.text_after_calls ? 1 : 0;
  const Timing& t = r.timing;
  prompt_.add(static_cast<double>(r.prompt_tokens));
  generated_.add(static_cast<double>(r.completion_tokens));
  max_tokens_.add(static_cast<double>(r.max_tokens));
  if (t.submitted_ns == 0 || t.finished_ns == 0) return;  // left by the client: no whole times
  e2e_.add(seconds(t.submitted_ns, t.finished_ns));
  if (t.admitted_ns != 0) queue_.add(seconds(t.submitted_ns, t.admitted_ns));
  if (t.first_token_ns == 0) return;
  ttft_.add(seconds(t.submitted_ns, t.first_token_ns));
  prefill_.add(seconds(t.admitted_ns, t.first_token_ns));
  decode_.add(seconds(t.first_token_ns, t.finished_ns));
  inference_.add(seconds(t.admitted_ns, t.finished_ns));
  if (r.completion_tokens > 1)
    per_token_.add(seconds(t.first_token_ns, t.finished_ns) / static_cast<double>(r.completion_tokens - 1));
  for (const double gap : r.token_gaps_s) gap_.add(gap);
}

std::string Metrics::text(const std::string& model_name, const SchedulerCounters& counters, int64_t max_model_len,
                          int max_sessions, double uptime_s, bool failed,
                          const std::vector<std::pair<std::string, std::string>>& identity) const {
  const std::lock_guard lock(mutex_);
  Writer w("model_name=\"" + metric_label(model_name) + "\",engine=\"0\"");
  w.one("vllm:num_requests_running", "gauge", "Requests in the engine.", static_cast<double>(counters.running));
  w.one("vllm:num_requests_waiting", "gauge", "Requests waiting for a session.", static_cast<double>(counters.waiting));
  const double usage =
      static_cast<double>(counters.held_tokens) / (static_cast<double>(max_model_len) * std::max(1, max_sessions));
  for (const char* name : {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"})
    w.one(name, "gauge", "Share of the cache positions in use, 0 to 1.", usage);
  w.one("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up in the prefix cache.", 0);
  w.one("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.", 0);
  w.one("vllm:num_preemptions_total", "counter", "Requests preempted.", 0);
  w.one("vllm:prompt_tokens_total", "counter", "Prompt tokens computed.", static_cast<double>(counters.prompt_tokens));
  w.one("vllm:generation_tokens_total", "counter", "Tokens generated.", static_cast<double>(counters.generated_tokens));
  w.one("vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts verified.",
        static_cast<double>(counters.drafted_tokens));
  w.one("vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts that were what would have been chosen.",
        static_cast<double>(counters.accepted_tokens));
  w.one("vllm:spec_decode_num_drafts_total", "counter", "Steps that verified drafts.",
        static_cast<double>(counters.drafted_at.empty() ? 0 : counters.drafted_at[0]));
  const auto by_place = [&](const char* name, const char* help, const std::vector<int64_t>& counts) {
    w.head(name, "counter", help);
    for (size_t i = 0; i < counts.size(); ++i)
      w.line(name, static_cast<double>(counts[i]), "position=\"" + std::to_string(i) + "\"");
  };
  by_place("dsf:draft_tokens_per_pos_total", "Drafts verified, by their place.", counters.drafted_at);
  by_place("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted drafts, by their place.",
           counters.accepted_at);
  w.head("vllm:request_success_total", "counter", "Generations by the way they ended.");
  for (const char* reason : {"stop", "length", "tool_calls", "abort", "error"}) {
    const auto found = by_reason_.find(reason);
    w.line("vllm:request_success_total", found == by_reason_.end() ? 0 : static_cast<double>(found->second),
           "finished_reason=\"" + std::string(reason) + "\"");
  }
  w.histogram("vllm:time_to_first_token_seconds", "From submission to the first token.", ttft_);
  w.histogram("vllm:inter_token_latency_seconds", "Between neighbouring tokens.", gap_);
  w.histogram("vllm:time_per_output_token_seconds", "Mean of a request, first token excluded.", per_token_);
  w.histogram("vllm:request_time_per_output_token_seconds", "Mean of a request, first token excluded.", per_token_);
  w.histogram("vllm:e2e_request_latency_seconds", "From submission to the last token.", e2e_);
  w.histogram("vllm:request_queue_time_seconds", "Waiting for a session.", queue_);
  w.histogram("vllm:request_prefill_time_seconds", "From admission to the first token.", prefill_);
  w.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", decode_);
  w.histogram("vllm:request_inference_time_seconds", "From admission to the last token.", inference_);
  w.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", prompt_);
  w.histogram("vllm:request_generation_tokens", "Generated tokens of a request.", generated_);
  w.histogram("vllm:request_params_max_tokens", "Limit of a request.", max_tokens_);
  w.head("dsf:http_requests_total", "counter", "HTTP requests answered, by status.");
  for (const auto& [status, count] : by_status_)
    w.line("dsf:http_requests_total", static_cast<double>(count), "status=\"" + std::to_string(status) + "\"");
  w.one("dsf:engine_steps_total", "counter", "Steps of the engine.", static_cast<double>(counters.steps));
  w.one("dsf:engine_failed", "gauge", "1 once the engine has failed.", failed ? 1 : 0);
  w.one("dsf:unclosed_thinking_total", "counter", "Replies that ended inside their reasoning.",
        static_cast<double>(unclosed_thinking_));
  w.one("dsf:tool_parse_failures_total", "counter", "Call blocks without a call.",
        static_cast<double>(tool_parse_failures_));
  w.one("dsf:tool_markup_in_content_total", "counter", "Replies with call markup although no tools were declared.",
        static_cast<double>(markup_in_content_));
  w.one("dsf:text_after_calls_total", "counter", "Replies with text after their calls.",
        static_cast<double>(text_after_calls_));
  w.one("dsf:uptime_seconds", "gauge", "Since the server became ready.", uptime_s);
  w.head("dsf:engine_info", "gauge", "What is loaded.");
  std::string labels;
  for (const auto& [key, value] : identity)
    labels += (labels.empty() ? "" : ",") + label_name(key) + "=\"" + metric_label(value) + "\"";
  w.line("dsf:engine_info", 1, labels);
  return w.out;
}

}  // namespace dsf::serve
