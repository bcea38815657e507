#include "tools/bench/campaign.h"

#include <algorithm>
#include <map>
#include <set>

#include "tools/bench/compare.h"
#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

// One row for each label and mode, from whichever of the label's runs holds the pass.
std::string headline(const std::vector<const Summary*>& summaries) {
  std::vector<std::string> labels, modes;
  const auto add = [](std::vector<std::string>& list, const std::string& v) {
    if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
  };
  for (const Summary* s : summaries) {
    add(labels, s->label);
    for (const auto& pass : s->passes) add(modes, pass.thinking);
  }
  std::string out = headline_header();
  for (const auto& label : labels) {
    for (const auto& mode : modes) {
      const Cell *c1 = nullptr, *best = nullptr;
      for (const Summary* s : summaries) {
        if (s->label != label) continue;
        if (const Pass* p = s->pass("decode", mode)) c1 = p->cell(1);
        if (const Pass* p = s->pass("prefill", mode)) best = p->best_prefill();
      }
      out += "| " + label + " | " + mode + " | " + (c1 != nullptr && c1->eligible ? format_number(c1->decode, 1) : "-") + " | " +
             (best != nullptr ? format_number(best->prefill, 1) + " (C" + std::to_string(best->c) + ")" : "-") + " |\n";
    }
  }
  return out;
}

std::string level_table(const std::vector<const Summary*>& summaries, const std::string& phase) {
  std::string head = "| Engine | Thinking |", rule = "|---|---|", rows;
  std::vector<int64_t> levels;
  for (const Summary* s : summaries) {
    for (const auto& pass : s->passes) {
      if (pass.phase != phase) continue;
      for (const auto& cell : pass.cells) levels.push_back(cell.c);
    }
  }
  std::sort(levels.begin(), levels.end());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  if (levels.empty()) return {};
  for (const int64_t c : levels) {
    head += " C" + std::to_string(c) + " |";
    rule += "---|";
  }
  for (const Summary* s : summaries) {
    for (const auto& pass : s->passes) {
      if (pass.phase != phase) continue;
      rows += "| " + s->label + " | " + pass.thinking + " |";
      for (const int64_t c : levels) {
        const Cell* cell = pass.cell(c);
        if (cell == nullptr) {
          rows += " - |";
          continue;
        }
        rows += " " + marked(*cell, phase == "decode" ? cell->decode : cell->prefill, 1) + (cell->decode_form == "span" ? " s" : "") + " |";
      }
      rows += "\n";
    }
  }
  const std::string title = phase == "decode" ? "Aggregate decode, output tok/s (s: whole span, the all-live window was too short)" : "Effective prefill, input tok/s";
  return "## " + title + "\n\n" + head + "\n" + rule + "\n" + rows + "\n";
}

std::string lengths_of(const Summary& s) {
  std::string out;
  for (const auto& pass : s.passes) {
    const json::Value* lines = pass.settings.find("input_lines");
    if (lines != nullptr) out = json::dump(*lines);
  }
  return out;
}

// TTFT(p) = t0 + p / R over the C1 cells of runs with different prompt lengths (bench.md 9.1): fixed cost apart from speed.
std::string length_fits(const std::vector<const Summary*>& summaries) {
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<double, double>>> points;
  std::map<std::pair<std::string, std::string>, std::set<std::string>> lengths;
  for (const Summary* s : summaries) {
    for (const auto& pass : s->passes) {
      const Cell* c1 = pass.cell(1);
      if (c1 == nullptr || !c1->eligible) continue;
      for (const Request* r : c1->requests) {
        const auto ttft_ms = request_metrics(*r).ttft_ms;
        if (!ttft_ms || !r->usage.prompt) continue;
        points[{s->label, pass.thinking}].emplace_back(static_cast<double>(*r->usage.prompt), *ttft_ms);
        lengths[{s->label, pass.thinking}].insert(lengths_of(*s));
      }
    }
  }
  std::string rows;
  for (const auto& [who, list] : points) {
    const auto fit = fit_line(list);
    if (lengths[who].size() < 2 || !fit || !(fit->slope > 0)) continue;
    rows += "| " + who.first + " | " + who.second + " | " + format_number(fit->offset, 1) + " | " + format_number(1000 / fit->slope, 1) + " | " + std::to_string(lengths[who].size()) + " |\n";
  }
  if (rows.empty()) return {};
  return "## Prompt length: TTFT = t0 + p / R at C1\n\n| Engine | Thinking | t0 ms | R (input tok/s) | Lengths |\n|---|---|---|---|---|\n" + rows + "\n";
}

}  // namespace

std::string campaign_report(const std::vector<const Summary*>& summaries) {
  std::string out = "# Benchmark campaign\n\n" + headline(summaries) + "\n" + level_table(summaries, "decode") + level_table(summaries, "prefill") + length_fits(summaries);
  int64_t planned = 0, ok = 0;
  for (const Summary* s : summaries) {
    for (const auto& pass : s->passes) {
      planned += pass.planned;
      ok += pass.ok;
    }
  }
  out += std::to_string(ok) + " of " + std::to_string(planned) + " planned requests succeeded.\n\n";
  for (const Summary* s : summaries) {
    if (s->reasons.empty()) continue;
    out += "**" + s->label + " is not valid:**";
    for (const auto& r : s->reasons) out += " " + r;
    out += ".\n\n";
  }
  // Across engines the numbers mean something together only when the runs are comparable.
  Comparison check;
  for (size_t i = 1; i < summaries.size(); ++i) {
    if (summaries[i]->label != summaries[0]->label && lengths_of(*summaries[i]) == lengths_of(*summaries[0])) check_pair(*summaries[0], *summaries[i], {}, check);
  }
  std::erase_if(check.refusals, [](const std::string& r) { return r == "the runs have no pass in common"; });
  if (!check.refusals.empty()) {
    out += "Rows of different engines are **not comparable** here:\n";
    for (const auto& r : check.refusals) out += "- " + r + "\n";
  }
  return out;
}

}  // namespace dsf::bench
