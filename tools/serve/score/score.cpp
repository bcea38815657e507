#include "tools/serve/score/score.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/tokenizer/tokenizer.h"
#include "tools/serve/backends/registry/registry.h"

namespace dsf::serve {
namespace {

constexpr uint64_t kMaxInputBytes = uint64_t{256} << 20;

Result<int32_t> to_id(std::optional<int64_t> value, std::string_view subject) {
  if (!value || *value < 0 || *value > std::numeric_limits<int32_t>::max())
    return fail(Code::kUsage, std::string(subject), "is not a list of token ids", "give a JSON array or numbers");
  return static_cast<int32_t>(*value);
}

Result<std::vector<int32_t>> read_ids(const ScoreOptions& o, const Engine& engine) {
  if (!o.token_ids_file.empty()) {
    DSF_TRY(const std::string text, io::read_text(o.token_ids_file, kMaxInputBytes));
    return parse_token_ids(text, o.token_ids_file.string());
  }
  DSF_TRY(const auto tokenizer, tokenizer::Tokenizer::load(o.model_dir / "tokenizer.json"));
  DSF_TRY(const std::string text, io::read_text(o.text_file, kMaxInputBytes));
  std::vector<int32_t> ids = {static_cast<int32_t>(engine.config().bos_token_id)};
  tokenizer.encode_append(text, tokenizer::Specials::kOff, ids);
  return ids;
}

double log_sum_exp(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float v : row) sum += std::exp(v - top);
  return top + std::log(sum);
}

// Reads the logits of one context chunk by chunk.
Result<void> run(Engine& engine, std::span<const int32_t> ids, int64_t chunk, ScoreReport& report,
                 std::vector<float>* logits) {
  DSF_TRY(const SessionId session, engine.open());
  const auto v = static_cast<size_t>(engine.config().vocab_size);
  for (size_t at = 0; at < ids.size(); at += static_cast<size_t>(chunk)) {
    const auto part = ids.subspan(at, std::min(static_cast<size_t>(chunk), ids.size() - at));
    const StepItem item{.session = session, .tokens = part, .want_all_logits = true};
    DSF_TRY(const StepOutput out, engine.step({&item, 1}));
    for (size_t r = 0; r < part.size(); ++r) {
      const auto row = out.logits.subspan(r * v, v);
      report.greedy.push_back(static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      if (at + r + 1 < ids.size())
        report.logprobs.emplace_back(row[static_cast<size_t>(ids[at + r + 1])] - log_sum_exp(row));
    }
    if (logits != nullptr) logits->insert(logits->end(), out.logits.begin(), out.logits.end());
  }
  engine.close(session);
  return {};
}

template <class T>
std::vector<std::byte> raw_bytes(const std::vector<T>& v) {
  std::vector<std::byte> bytes(v.size() * sizeof(T));
  std::memcpy(bytes.data(), v.data(), bytes.size());
  return bytes;
}

Result<void> write_logits(const std::filesystem::path& path, const std::vector<int32_t>& ids,
                          const std::vector<float>& logits) {
  const auto n = std::ssize(ids);
  const safetensors::TensorData tensors[] = {
      {"logits", tensor::DType::kF32, {n, std::ssize(logits) / n}, raw_bytes(logits)},
      {"input_ids", tensor::DType::kI32, {n}, raw_bytes(ids)}};
  return safetensors::write_file(path, tensors);
}

}  // namespace

std::vector<std::span<const int32_t>> contexts_of(std::span<const int32_t> ids, int32_t bos) {
  std::vector<std::span<const int32_t>> contexts;
  while (!ids.empty()) {
    const auto n = static_cast<size_t>(std::find(ids.begin() + 1, ids.end(), bos) - ids.begin());
    contexts.push_back(ids.first(n));
    ids = ids.subspan(n);
  }
  return contexts;
}

Result<std::vector<int32_t>> parse_token_ids(std::string_view text, std::string_view subject) {
  std::vector<int32_t> ids;
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first != std::string_view::npos && text[first] == '[') {
    DSF_TRY(const json::Value list, json::parse(text, subject));
    for (const json::Value& value : list.as_array()) {
      DSF_TRY(const int32_t id, to_id(value.to_i64(), subject));
      ids.push_back(id);
    }
    return ids;
  }
  for (size_t at = first; at != std::string_view::npos && at < text.size();) {
    const size_t end = std::min(text.find_first_of(kSpace, at), text.size());
    DSF_TRY(const int32_t id, to_id(parse_i64(text.substr(at, end - at)), subject));
    ids.push_back(id);
    at = text.find_first_not_of(kSpace, end);
  }
  return ids;
}

Result<ScoreReport> score(const ScoreOptions& o) {
  if (o.token_ids_file.empty() == o.text_file.empty())
    return fail(Code::kUsage, "score", "needs either --token-ids or --text");
  if (o.chunk < 1) return fail(Code::kUsage, "--chunk", "must be at least 1");
  EngineRequest request;
  request.backend = o.backend;
  request.device = o.device;
  request.model_dir = o.model_dir;
  request.engram_dir = o.engram_dir;
  request.max_step_tokens = o.chunk;
  request.max_sessions = 1;
  request.threads = o.threads;
  request.fake_quant = o.fake_quant;
  DSF_TRY(const std::unique_ptr<Engine> engine, open_engine(request));
  ScoreReport report;
  DSF_TRY(report.ids, read_ids(o, *engine));
  if (report.ids.empty())
    return fail(Code::kUsage, (o.token_ids_file.empty() ? o.text_file : o.token_ids_file).string(), "holds no tokens");
  std::vector<float> logits;
  const auto bos = static_cast<int32_t>(engine->config().bos_token_id);
  std::vector<std::span<const int32_t>> contexts = {report.ids};
  if (o.restart_at_bos) contexts = contexts_of(report.ids, bos);
  for (const std::span<const int32_t> context : contexts) {
    if (!report.greedy.empty()) report.logprobs.emplace_back();
    DSF_OK(run(*engine, context, o.chunk, report, o.logits_out.empty() ? nullptr : &logits));
  }
  double sum = 0;
  for (const std::optional<double>& lp : report.logprobs) {
    if (lp) sum += *lp, ++report.n_predicted;
  }
  if (report.n_predicted > 0) {
    report.mean_nll = -sum / static_cast<double>(report.n_predicted);
    report.perplexity = std::exp(report.mean_nll);
  }
  report.identity = engine->identity();
  if (!o.logits_out.empty()) DSF_OK(write_logits(o.logits_out, report.ids, logits));
  return report;
}

}  // namespace dsf::serve
