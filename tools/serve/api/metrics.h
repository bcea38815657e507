#pragma once
// What the server counts, and its Prometheus text. Names and buckets are those that dashboards for vLLM expect, plus
// our own under "dsf:". Any thread; one mutex, held for additions and for copying. Source: serving.md 4.8.
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tools/serve/scheduler/scheduler.h"

namespace dsf::serve {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  void write(std::string& out, const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> bounds_;  // upper bounds, ascending; one more count for +Inf
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// One finished generation.
struct GenerationRecord {
  std::string finished_reason;  // "stop", "length", "tool_calls", "abort", "error"
  int64_t prompt_tokens = 0, completion_tokens = 0, max_tokens = 0;
  Timing timing;
  std::vector<double> token_gaps_s;  // between neighbouring tokens as the consumer saw them
  bool unclosed_thinking = false, markup_in_content = false, text_after_calls = false;
  int tool_parse_failures = 0;
};

class Metrics {
 public:
  Metrics();
  void request(int status);  // every HTTP request answered
  void generation(const GenerationRecord& record);
  int64_t requests() const;
  int64_t errors() const;  // answers of 500 and above, and streams that ended in an error event
  // identity and build become info metrics, so that a scrape names the bytes it measured.
  std::string text(const std::string& model_name, const SchedulerCounters& counters, int64_t max_model_len,
                   int max_sessions, double uptime_s, bool failed,
                   const std::vector<std::pair<std::string, std::string>>& identity) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, int64_t> by_status_;
  std::map<std::string, int64_t> by_reason_;
  int64_t unclosed_thinking_ = 0, tool_parse_failures_ = 0, markup_in_content_ = 0, text_after_calls_ = 0;
  Histogram ttft_, gap_, per_token_, e2e_, queue_, prefill_, decode_, inference_, prompt_, generated_, max_tokens_;
};

// Escapes a label value.
std::string metric_label(std::string_view value);

}  // namespace dsf::serve
