#include <cstdio>

#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "tools/serve/identity.h"
#include "tools/serve/score/score.h"

namespace dsf::serve {

namespace {

namespace fs = std::filesystem;

Result<void> add_file(const fs::path& path, std::vector<manifest::Input>& out) {
  DSF_TRY(const codec::Digest digest, codec::sha256_file(path));
  out.push_back({path.filename().string(), digest.hex()});
  return {};
}

// Checkpoint, token map, packed rows, and what was scored.
Result<std::vector<manifest::Input>> inputs_of(const ScoreOptions& o) {
  DSF_TRY(std::vector<manifest::Input> out, checkpoint_inputs(o.model_dir, UINT64_MAX));
  const fs::path map = o.model_dir / "engram_token_map.json";
  if (fs::exists(map)) DSF_OK(add_file(map, out));
  std::error_code error;
  if (!o.engram_dir.empty() && !fs::equivalent(o.engram_dir, o.model_dir, error)) {
    DSF_TRY(const std::vector<std::string> rows, io::list_files(o.engram_dir));
    for (const std::string& name : rows) DSF_OK(add_file(o.engram_dir / name, out));
  }
  DSF_OK(add_file(o.token_ids_file.empty() ? o.text_file : o.token_ids_file, out));
  return out;
}

}  // namespace

Result<json::Value> to_json(const ScoreReport& r, const ScoreOptions& o) {
  manifest::Record record;
  record.schema = "score";
  record.created_by = cli::tool_id("dsf-serve");
  DSF_TRY(record.inputs, inputs_of(o));
  for (size_t t = 0; t < r.ids.size(); ++t) {
    json::Object item = {{"position", t}, {"id", r.ids[t]}};
    if (t > 0 && r.logprobs[t - 1]) item.emplace_back("logprob", *r.logprobs[t - 1]);  // a first token is given
    item.emplace_back("greedy_next", r.greedy[t]);
    record.items.push_back(std::move(item));
  }
  json::Object identity;
  for (const auto& [name, value] : r.identity) identity.emplace_back(name, value);
  record.more = {{"engine", std::move(identity)}, {"cache_fake_quant", o.fake_quant}, {"n_tokens", r.ids.size()},
                 {"n_predicted", r.n_predicted},  {"mean_nll", r.mean_nll},           {"perplexity", r.perplexity}};
  return manifest::to_json(record);
}

Result<int> run_score(const ScoreOptions& options) {
  DSF_TRY(const ScoreReport report, score(options));
  if (options.json) {
    DSF_TRY(const json::Value record, to_json(report, options));
    const std::string text = json::dump(record, json::Style::kPretty) + "\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    std::printf("tokens      %zu\nmean nll    %.6f nats\nperplexity  %.4f\n", report.ids.size(), report.mean_nll,
                report.perplexity);
  }
  return static_cast<int>(Code::kOk);
}

}  // namespace dsf::serve
