#include "tools/bench/compare.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/cli/version.h"
#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

using json::Value;

// The repeats of a cell, by the form that both runs can offer.
std::vector<double> repeats_of(const Pass& pass, const Cell& cell, bool use_ref, const std::string& form) {
  std::vector<double> out;
  const auto keep = [&](const std::optional<double>& v) {
    if (v) out.push_back(*v);
  };
  if (pass.phase == "prefill") {
    for (const auto& v : cell.prefill_repeats) keep(v);
  } else if (cell.c == 1) {
    for (const Request* r : cell.requests) {
      const RequestMetrics m = request_metrics(*r);
      keep(use_ref ? m.decode_ref : m.decode);
    }
  } else {
    for (const auto& m : cell.runs) keep(form == "window" ? m.win : m.span);
  }
  return out;
}

std::string ratio_text(const std::optional<Ratio>& r) {
  if (!r) return "-";
  std::string out = format_number(r->value, 3);
  if (!r->interval) return out;
  out += " [" + format_number(r->interval->first, 3) + ", " + format_number(r->interval->second, 3) + "]";
  if (r->interval->first <= 1 && r->interval->second >= 1) out += " ~";
  return out;
}

// Tokens of an event, and of a verify round where the engine drafts and says so: two engines with other values spent their time differently.
std::string bundling(const Cell& cell) { return format_number(cell.runs.front().tokens_per_event, 2) + " / " + format_number(cell.tokens_per_round, 2); }

int64_t equal_replies(const Cell& a, const Cell& b) {
  int64_t n = 0;
  for (size_t i = 0; i < std::min(a.requests.size(), b.requests.size()); ++i) {
    n += !a.requests[i]->output.text_sha256.empty() && a.requests[i]->output.text_sha256 == b.requests[i]->output.text_sha256 ? 1 : 0;
  }
  return n;
}

class Comparer {
 public:
  Comparer(const std::vector<const Summary*>& runs, const CompareOptions& options, Comparison& out) : runs_(runs), options_(options), out_(out) {}

  void tables() {
    out_.csv = "phase,thinking,c,form,base_label,base,label,value,ratio,low,high,equal_replies,base_tokens_per_event,tokens_per_event,base_tokens_per_round,tokens_per_round\r\n";
    for (const auto& pass : runs_[0]->passes) {
      if (std::all_of(runs_.begin(), runs_.end(), [&](const Summary* s) { return s->pass(pass.phase, pass.thinking) != nullptr; })) one_pass(pass);
    }
    out_.json.set("cells", std::move(cells_));
  }

  const std::optional<Ratio>* find(const std::string& path) const {
    const auto it = std::find_if(ratios_.begin(), ratios_.end(), [&](const auto& r) { return r.first == path; });
    return it == ratios_.end() ? nullptr : &it->second;
  }

 private:
  void one_pass(const Pass& base) {
    std::string& md = out_.markdown;
    md += "## " + base.phase + ", thinking " + base.thinking + " (" + (base.phase == "decode" ? "output" : "input") + " tok/s)\n\n| C | form | " + runs_[0]->label + " |";
    for (size_t i = 1; i < runs_.size(); ++i) md += " " + runs_[i]->label + " | ratio | equal replies | tokens per event / round |";
    md += "\n|---|---|---|";
    for (size_t i = 1; i < runs_.size(); ++i) md += "---|---|---|---|";
    md += "\n";
    for (const auto& cell : base.cells) one_cell(base, cell);
    md += "\n";
  }

  void one_cell(const Pass& base, const Cell& cell) {
    // One form for all: d needs known weights everywhere, the window needs to be valid everywhere.
    bool use_ref = false;
    std::string form = base.phase == "prefill" ? "makespan" : cell.c == 1 ? "d" : "window";
    for (const Summary* s : runs_) {
      const Pass& pass = *s->pass(base.phase, base.thinking);
      const Cell* other = pass.cell(cell.c);
      if (other == nullptr) return;
      if (form == "d" && pass.decode_formula != "d") use_ref = true;
      if (form == "window" && other->decode_form != "window") form = "span";
    }
    if (use_ref) form = "d_ref";
    const std::vector<double> a = repeats_of(base, cell, use_ref, form);
    out_.markdown += "| " + std::to_string(cell.c) + " | " + form + " | " + marked(cell, median(a), 1) + " |";
    for (size_t i = 1; i < runs_.size(); ++i) {
      const Pass& pass = *runs_[i]->pass(base.phase, base.thinking);
      const Cell& other = *pass.cell(cell.c);
      one_pair(base, cell, a, *runs_[i], other, repeats_of(pass, other, use_ref, form), form, i == 1);
    }
    out_.markdown += "\n";
  }

  void one_pair(const Pass& base, const Cell& cell, const std::vector<double>& a, const Summary& run, const Cell& other, const std::vector<double>& b,
                const std::string& form, bool first) {
    const auto ratio = paired_ratio(a, b);
    const int64_t equal = equal_replies(cell, other);
    out_.markdown += " " + marked(other, median(b), 1) + " | " + ratio_text(ratio) + " | " + std::to_string(equal) + "/" + std::to_string(cell.requests.size()) + " | " + bundling(cell) + " against " + bundling(other) + " |";
    if (first) ratios_.emplace_back("ratio." + base.phase + "." + base.thinking + ".c" + std::to_string(cell.c), ratio);
    const auto number = [](const std::optional<double>& v) { return v ? Value(*v) : Value(); };
    Value row = json::Object{{"phase", base.phase}, {"thinking", base.thinking}, {"c", cell.c}, {"form", form}, {"base", runs_[0]->label}, {"base_value", number(median(a))},
                             {"label", run.label}, {"value", number(median(b))}, {"ratio", ratio ? Value(ratio->value) : Value()}};
    row.set("interval", ratio && ratio->interval ? Value(json::Array{ratio->interval->first, ratio->interval->second}) : Value());
    row.set("equal_replies", equal);
    row.set("tokens_per_event", json::Array{number(cell.runs.front().tokens_per_event), number(other.runs.front().tokens_per_event)});
    row.set("tokens_per_round", json::Array{number(cell.tokens_per_round), number(other.tokens_per_round)});
    const auto text = [](const std::optional<double>& v) { return v ? json::format_double(*v) : std::string(); };
    out_.csv += base.phase + "," + base.thinking + "," + std::to_string(cell.c) + "," + form + "," + runs_[0]->label + "," + text(median(a)) + "," + run.label + "," + text(median(b)) + "," +
                (ratio ? json::format_double(ratio->value) : "") + "," + (ratio && ratio->interval ? json::format_double(ratio->interval->first) : "") + "," +
                (ratio && ratio->interval ? json::format_double(ratio->interval->second) : "") + "," + std::to_string(equal) + "," + text(cell.runs.front().tokens_per_event) + "," +
                text(other.runs.front().tokens_per_event) + "," + text(cell.tokens_per_round) + "," + text(other.tokens_per_round) + "\r\n";
    cells_.push_back(std::move(row));
  }

  const std::vector<const Summary*>& runs_;
  const CompareOptions& options_;
  Comparison& out_;
  json::Array cells_;
  std::vector<std::pair<std::string, std::optional<Ratio>>> ratios_;
};

Value texts(const std::vector<std::string>& values) {
  json::Array out;
  for (const auto& v : values) out.emplace_back(v);
  return out;
}

Result<void> apply_thresholds(const Comparer& comparer, const CompareOptions& options, Comparison& out) {
  for (const auto& expr : options.fail_under) {
    const size_t equals = expr.find('=');
    const auto limit = equals == std::string::npos ? std::nullopt : parse_double(std::string_view(expr).substr(equals + 1));
    if (!limit || !expr.starts_with("ratio.")) return fail(Code::kUsage, expr, "no threshold on a ratio", "write it like ratio.decode.off.c1=0.97");
    const auto* ratio = comparer.find(expr.substr(0, equals));
    bool met = false;
    if (ratio != nullptr && *ratio) {
      // With repeats, noise must not fail a build: the whole interval has to lie below the limit.
      const double value = (*ratio)->interval && !options.strict ? (*ratio)->interval->second : (*ratio)->value;
      met = value >= *limit;
    }
    out.markdown += "Threshold " + expr + (met ? ": met\n" : ": **not met**\n");
    out.thresholds_met = out.thresholds_met && met;
  }
  return {};
}

}  // namespace

Result<Comparison> compare(const std::vector<const Summary*>& runs, const CompareOptions& options) {
  Comparison out;
  if (runs.size() < 2) return fail(Code::kUsage, "compare", "two or more runs are needed", "dsf-bench compare A B");
  for (size_t i = 1; i < runs.size(); ++i) check_pair(*runs[0], *runs[i], options, out);
  out.json = json::Object{{"schema", "bench.compare/1"}, {"v", 1}, {"created_by", cli::tool_id("dsf-bench")}};
  json::Array inputs;
  for (const Summary* s : runs) inputs.push_back(json::Object{{"label", s->label}, {"run_id", s->run_id}, {"run_sha256", s->run_sha256}, {"raw_sha256", s->raw_sha256}});
  out.json.set("inputs", std::move(inputs));
  out.json.set("comparable", out.refusals.empty());
  out.json.set("refusals", texts(out.refusals));
  out.json.set("warnings", texts(out.warnings));
  if (!out.refusals.empty() && !options.force) return out;
  out.markdown = "# Comparison, base " + runs[0]->label + "\n\n";
  if (!out.refusals.empty()) {
    out.markdown += "**NOT COMPARABLE:**\n";
    for (const auto& r : out.refusals) out.markdown += "- " + r + "\n";
    out.markdown += "\n";
  }
  Comparer comparer(runs, options, out);
  comparer.tables();
  if (runs[0]->passes.front().pass_sha256.size() == 1) out.markdown += "Single pass: no intervals.\n\n";
  for (const auto& w : out.warnings) out.markdown += "Note: " + w + ".\n";
  DSF_OK(apply_thresholds(comparer, options, out));
  return out;
}

}  // namespace dsf::bench
