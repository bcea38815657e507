#pragma once
// dsf-serve score: the log-probability of a given text under the model, and its full logits, without serving.
//
// Used by people to measure perplexity and by tests to hold this engine against other implementations. score() is a
// function of files and does not print; run_score() prints its report to stdout. One thread calls them. Logits are f32
// [n_tokens, vocab_size]: row t belongs to the token after position t.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"

namespace dsf::serve {

struct ScoreOptions {
  std::filesystem::path model_dir = {};
  std::filesystem::path engram_dir = {};      // packed row files, or shards with the tables; empty: model_dir
  std::filesystem::path token_ids_file = {};  // a JSON array or whitespace-separated ids; works without tokenizer.json
  std::filesystem::path text_file = {};  // UTF-8, tokenised as plain text behind the BOS token; exactly one of the two
  std::filesystem::path logits_out =
      {};                       // safetensors with "logits" F32 [n, V] and "input_ids" I32 [n]; empty: not written
  bool json = false;            // run_score(): one document instead of three lines
  bool restart_at_bos = false;  // each BOS token begins a context of its own and is not predicted
  bool fake_quant = true;       // the trained cache formats (off: --no-cache-fake-quant)
  int64_t chunk = 512;          // tokens of one prefill step; does not change results
  int threads = 0;              // 0: the machine's
  std::string backend = "cpu";
  int device = 0;  // of backend cuda
};

struct ScoreReport {
  std::vector<int32_t> ids;
  // [n - 1]: of ids[t + 1] after its context (ids[0 .. t]), natural logarithm; nothing where a context begins.
  std::vector<std::optional<double>> logprobs;
  int64_t n_predicted = 0;      // of them
  std::vector<int32_t> greedy;  // [n]: most likely token after position t, ties to the lower id
  double mean_nll = 0;          // nats per predicted token; 0 with fewer than two tokens
  double perplexity = 1;
  std::vector<std::pair<std::string, std::string>> identity;  // of the engine
};

// Errors: kUsage for options and ids, those of the engine and the tokenizer, kLocal from writing the logits.
Result<ScoreReport> score(const ScoreOptions& options);
// The record: its inputs are every file that was read, with its digest. Errors: those of reading them again.
Result<json::Value> to_json(const ScoreReport& report, const ScoreOptions& options);
// The exit code.
Result<int> run_score(const ScoreOptions& options);

// ids cut before every bos. The spans borrow from ids.
std::vector<std::span<const int32_t>> contexts_of(std::span<const int32_t> ids, int32_t bos);

// "[1, 2, 3]" or "1 2 3". subject names the file in errors.
Result<std::vector<int32_t>> parse_token_ids(std::string_view text, std::string_view subject);

}  // namespace dsf::serve
