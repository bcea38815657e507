#include "tools/bench/csv.h"

namespace dsf::bench {
namespace {

// One row; fields are quoted when they need it.
class Row {
 public:
  Row& text(std::string_view s) {
    sep();
    if (s.find_first_of(",\"\r\n") == std::string_view::npos) {
      line_ += s;
      return *this;
    }
    line_ += '"';
    for (const char c : s) {
      if (c == '"') line_ += '"';
      line_ += c;
    }
    line_ += '"';
    return *this;
  }
  Row& integer(int64_t v) { return text(std::to_string(v)); }
  Row& integer(const std::optional<int64_t>& v) { return v ? integer(*v) : text(""); }
  Row& number(const std::optional<double>& v) { return text(v ? json::format_double(*v) : ""); }
  std::string end() { return line_ + "\r\n"; }

 private:
  void sep() {
    if (any_) line_ += ',';
    any_ = true;
  }
  std::string line_;
  bool any_ = false;
};

std::string joined(const std::vector<std::string>& flags) {
  std::string out;
  for (const auto& f : flags) out += (out.empty() ? "" : " ") + f;
  return out;
}

std::string matrix_row(const Summary& s, const Pass& pass, const Cell& cell, size_t repeat) {
  const LevelMetrics& m = cell.runs[repeat];
  std::optional<int64_t> p = 0, n = 0, cached = 0;
  const auto add = [](std::optional<int64_t>& sum, const std::optional<int64_t>& v) { sum = sum && v ? std::optional(*sum + *v) : std::nullopt; };
  for (const Request* r : cell.requests) {
    if (r->repeat != static_cast<int64_t>(repeat)) continue;
    add(p, r->usage.prompt);
    add(n, r->n_tokens);
    add(cached, r->usage.cached);
  }
  Row row;
  row.text(s.label).text(s.model).text(pass.phase).text(pass.thinking).integer(static_cast<int64_t>(repeat)).integer(cell.c).integer(m.ok).integer(cell.c - m.ok);
  row.text(cell.eligible ? "true" : "false").integer(p).integer(n).integer(cached);
  row.number(repeat < cell.decode_repeats.size() ? cell.decode_repeats[repeat] : std::nullopt).text(cell.decode_form);
  row.number(m.win).number(m.span).number(m.all).number(m.sum).number(m.stream_min).number(m.stream_median).number(m.stream_max);
  row.number(m.prefill).number(m.prefill_user).number(min_of(m.ttft_ms)).number(median(m.ttft_ms)).number(max_of(m.ttft_ms)).number(median(m.tpot_ms));
  row.number(weighted_mean(m.itl_ms)).number(max_of(m.icl_ms)).number(m.tokens_per_event).number(m.window_coverage).text(joined(cell.flags));
  return row.end();
}

}  // namespace

std::string matrix_csv(const std::vector<const Summary*>& summaries) {
  std::string out =
      "label,model,phase,thinking,repeat,c,ok,failed,eligible,prompt_tokens_sum,completion_tokens_sum,cached_tokens_sum,decode_value,decode_form,decode_win,"
      "decode_span,decode_all,decode_sum,stream_min,stream_median,stream_max,prefill_eff,prefill_user,ttft_min_ms,ttft_median_ms,ttft_max_ms,tpot_median_ms,"
      "itl_mean_ms,icl_max_ms,tokens_per_event,window_coverage,flags\r\n";
  for (const Summary* s : summaries) {
    for (const auto& pass : s->passes) {
      for (const auto& cell : pass.cells) {
        for (size_t repeat = 0; repeat < cell.runs.size(); ++repeat) out += matrix_row(*s, pass, cell, repeat);
      }
    }
  }
  return out;
}

std::string requests_csv(const RunData& data) {
  std::string out =
      "id,phase,thinking,repeat,c,slot,status,prompt_sha256,prompt_tokens,cached_tokens,completion_tokens,finish_reason,ttfb_ms,ttfr_ms,ttft_ms,ttfo_ms,"
      "e2e_ms,d,d_ref,tpot_ms,token_events,reads,weight_source,count_source,flags\r\n";
  for (const auto& r : data.requests) {
    const RequestMetrics m = request_metrics(r);
    Row row;
    row.text(r.id).text(r.phase).text(r.thinking).integer(r.repeat).integer(r.c).integer(r.slot).text(name_of(r.status)).text(r.prompt_sha256);
    row.integer(r.usage.prompt).integer(r.usage.cached).integer(r.n_tokens).text(r.output.finish_reason);
    row.number(m.ttfb_ms).number(m.ttfr_ms).number(m.ttft_ms).number(m.ttfo_ms).number(m.e2e_ms).number(m.decode).number(m.decode_ref).number(m.tpot_ms);
    row.integer(static_cast<int64_t>(token_events(r).size())).integer(static_cast<int64_t>(r.reads.size()));
    row.text(r.weight_source).text(r.token_count_source).text(joined(r.flags));
    out += row.end();
  }
  return out;
}

}  // namespace dsf::bench
