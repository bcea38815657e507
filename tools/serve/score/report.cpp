#include <cstdio>

#include "dsf/cli/version.h"
#include "dsf/manifest/record.h"
#include "tools/serve/score/score.h"

namespace dsf::serve {

json::Value to_json(const ScoreReport& r, const ScoreOptions& o) {
  manifest::Record record;
  record.schema = "score";
  record.created_by = cli::tool_id("dsf-serve");
  record.inputs = {{.path = o.model_dir.string(), .sha256 = {}},
                   {.path = (o.token_ids_file.empty() ? o.text_file : o.token_ids_file).string(), .sha256 = {}}};
  for (size_t t = 0; t < r.ids.size(); ++t) {
    json::Object item = {{"position", t}, {"id", r.ids[t]}};
    if (t > 0) item.emplace_back("logprob", r.logprobs[t - 1]);  // the first token is given, not predicted
    item.emplace_back("greedy_next", r.greedy[t]);
    record.items.push_back(std::move(item));
  }
  json::Object identity;
  for (const auto& [name, value] : r.identity) identity.emplace_back(name, value);
  record.more = {{"engine", std::move(identity)},    {"cache_fake_quant", o.fake_quant}, {"n_tokens", r.ids.size()},
                 {"n_predicted", r.logprobs.size()}, {"mean_nll", r.mean_nll},           {"perplexity", r.perplexity}};
  return manifest::to_json(record);
}

Result<int> run_score(const ScoreOptions& options) {
  DSF_TRY(const ScoreReport report, score(options));
  if (options.json) {
    const std::string text = json::dump(to_json(report, options), json::Style::kPretty) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    std::printf("tokens      %zu\nmean nll    %.6f nats\nperplexity  %.4f\n", report.ids.size(), report.mean_nll,
                report.perplexity);
  }
  return static_cast<int>(Code::kOk);
}

}  // namespace dsf::serve
