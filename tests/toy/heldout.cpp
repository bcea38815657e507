#include "tests/toy/heldout.h"

#include <algorithm>

#include "dsf/io/file.h"
#include "dsf/json/json.h"

namespace dsf::toy {
namespace {

Result<std::vector<int32_t>> encode(const json::Value& c, const json::Value& messages, bool finished,
                                    const tokenizer::Tokenizer& tokenizer, const tokenizer::ControlIds& ids) {
  const json::Value* effort = c.find("effort");
  if (effort == nullptr) return fail(Code::kContent, "held-out case", "has no effort");
  tokenizer::PromptOptions options;
  DSF_TRY(options.thinking, tokenizer::parse_effort(*effort, tokenizer::EffortTable::release()));
  options.add_generation_prompt = !finished;
  DSF_TRY(const tokenizer::RenderedPrompt prompt,
          tokenizer::render_prompt(
              {.messages = &messages, .tools = c.find("tools"), .response_schema = c.find("schema")}, options));
  return tokenizer::encode_segments(prompt.segments, tokenizer, ids);
}

Result<Conversation> conversation_of(const json::Value& c, const tokenizer::Tokenizer& tokenizer,
                                     const tokenizer::ControlIds& control) {
  const json::Value *messages = c.find("messages"), *answer = c.find("expect");
  if (messages == nullptr || answer == nullptr)
    return fail(Code::kContent, "held-out case", "needs messages and expect");
  json::Value all = *messages;
  all.push(*answer);
  DSF_TRY(const std::vector<int32_t> prompt, encode(c, *messages, false, tokenizer, control));
  Conversation out;
  DSF_TRY(out.ids, encode(c, all, true, tokenizer, control));
  out.answer_begin = std::ssize(prompt);
  if (std::ssize(out.ids) <= out.answer_begin || !std::equal(prompt.begin(), prompt.end(), out.ids.begin()))
    return fail(Code::kContent, "held-out case", "its prompt is not how the whole conversation begins");
  return out;
}

}  // namespace

Result<std::vector<Conversation>> load_heldout(const std::filesystem::path& heldout_jsonl,
                                               const tokenizer::Tokenizer& tokenizer, int64_t stride) {
  DSF_TRY(const std::string text, io::read_text(heldout_jsonl));
  DSF_TRY(const std::vector<json::Value> cases, json::parse_lines(text, heldout_jsonl.string()));
  DSF_TRY(const tokenizer::ControlIds control, tokenizer::ControlIds::find(tokenizer));
  std::vector<Conversation> out;
  for (size_t i = 0; i < cases.size(); i += static_cast<size_t>(stride)) {
    DSF_TRY(Conversation c, conversation_of(cases[i], tokenizer, control));
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace dsf::toy
