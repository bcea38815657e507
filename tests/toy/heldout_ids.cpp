// For quality.sh: held-out conversations as token ids, and the perplexity of their answers alone from a record of
// dsf-serve score.
//
//   toy_heldout HELDOUT_JSONL TOKENIZER_JSON STRIDE            the ids as a JSON array
//   toy_heldout HELDOUT_JSONL TOKENIZER_JSON STRIDE SCORE_JSON  perplexity over the answers' tokens
#include <cmath>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/cli/app.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "tests/toy/heldout.h"

namespace {

using namespace dsf;

Result<double> answer_perplexity(const std::vector<toy::Conversation>& conversations, const json::Value& record) {
  const json::Cursor top(record, "score record");
  DSF_TRY(const json::Cursor items, top.at("items"));
  DSF_TRY(const std::vector<json::Cursor> tokens, items.elements());
  double sum = 0;
  int64_t n = 0;
  size_t at = 0;
  for (const toy::Conversation& c : conversations) {
    for (int64_t i = 0; i < std::ssize(c.ids); ++i, ++at) {
      if (at >= tokens.size() || tokens[at].value().find("id")->to_i64() != c.ids[static_cast<size_t>(i)])
        return top.fail("is not of these conversations");
      if (i < c.answer_begin) continue;
      DSF_TRY(const double logprob, tokens[at].number_at("logprob"));
      sum += logprob, ++n;
    }
  }
  return std::exp(-sum / static_cast<double>(n));
}

Result<int> run(cli::Args args) {
  if (args.argc != 4 && args.argc != 5)
    return fail(Code::kUsage, "toy_heldout", "takes HELDOUT_JSONL TOKENIZER_JSON STRIDE [SCORE_JSON]");
  const auto stride = parse_i64(args.argv[3]);
  if (!stride || *stride < 1) return fail(Code::kUsage, args.argv[3], "is no stride");
  DSF_TRY(const auto tokenizer, tokenizer::Tokenizer::load(args.argv[2]));
  DSF_TRY(const auto conversations, toy::load_heldout(args.argv[1], tokenizer, *stride));
  if (args.argc == 4) {
    json::Value ids = json::Value::array();
    for (const toy::Conversation& c : conversations)
      for (const int32_t id : c.ids) ids.push(id);
    std::printf("%s\n", json::dump(ids).c_str());
    return 0;
  }
  DSF_TRY(const std::string text, io::read_text(args.argv[4]));
  DSF_TRY(const json::Value record, json::parse(text, args.argv[4]));
  DSF_TRY(const double perplexity, answer_perplexity(conversations, record));
  std::printf("%.4f\n", perplexity);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return dsf::cli::run_main(argc, argv, run); }
