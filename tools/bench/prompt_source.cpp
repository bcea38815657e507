#include "tools/bench/prompt_source.h"

#include <algorithm>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"

namespace dsf::bench {
namespace {

using json::Cursor;
using json::Value;

constexpr std::string_view kFileTail = "Continue the text above in the same manner, at length. Begin with the next sentence.";

// ShareGPT names the speakers "human" and "gpt".
std::string role_of(const std::string& from) { return from == "human" ? "user" : from == "gpt" ? "assistant" : from; }

// A conversation up to its last user turn: what follows is the answer to be measured.
Result<Prompt> conversation(const Cursor& list, const char* who, const char* what) {
  DSF_TRY(const std::vector<Cursor> turns, list.elements());
  json::Array messages;
  size_t keep = 0;
  for (const auto& turn : turns) {
    DSF_TRY(const std::string role, turn.string_at(who));
    DSF_TRY(const std::string content, turn.string_at(what));
    messages.push_back(json::Object{{"role", role_of(role)}, {"content", content}});
    if (role_of(role) == "user") keep = messages.size();
  }
  if (keep == 0) return list.fail("no user turn");
  messages.resize(keep);
  Prompt out;
  if (messages.size() == 1) out.text = messages.front().find("content")->as_string();
  else out.messages = std::move(messages);
  return out;
}

Result<Prompt> item_from(const Value& line, const std::string& subject) {
  const Cursor at(line, subject);
  if (const auto prompt = at.maybe("prompt")) {
    DSF_TRY(std::string text, prompt->string());
    return Prompt{std::move(text), {}};
  }
  if (const auto messages = at.maybe("messages")) return conversation(*messages, "role", "content");
  if (const auto turns = at.maybe("conversations")) return conversation(*turns, "from", "value");
  return at.fail("prompt, messages or conversations expected");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) out.push_back(std::move(line));
    at = end + 1;
  }
  return out;
}

}  // namespace

Result<PromptSource> PromptSource::load(const std::string& style) {
  PromptSource out;
  if (style == "words") return out;
  const bool file = style.starts_with("file:"), dataset = style.starts_with("dataset:");
  const std::string path = style.substr(std::min(style.size(), style.find(':') + 1));
  if ((!file && !dataset) || path.empty()) return fail(Code::kUsage, "--prompt-style", "'" + style + "' is no style", "use words, file:PATH or dataset:PATH", "arguments");
  DSF_TRY(const std::string text, io::read_text(path));
  out.style_ = std::string(file ? "bench-file/1" : "bench-dataset/1") + "|sha256=" + codec::sha256(text).hex();
  if (file) {
    out.lines_ = lines_of(text);
  } else {
    DSF_TRY(const std::vector<Value> values, json::parse_lines(text, path, {.reject_duplicate_keys = false}));
    for (size_t i = 0; i < values.size(); ++i) {
      DSF_TRY(Prompt item, item_from(values[i], path + ":" + std::to_string(i + 1)));
      out.items_.push_back(std::move(item));
    }
  }
  if (out.lines_.empty() && out.items_.empty()) return fail(Code::kUsage, path, "the file holds no text", "give one with lines", "arguments");
  return out;
}

Prompt PromptSource::make(const PromptKey& key, int64_t ordinal) const {
  if (!items_.empty()) return items_[static_cast<size_t>(ordinal) % items_.size()];
  if (lines_.empty()) return {prompt_text(key), {}};
  std::string text = nonce_line(key);
  const size_t start = key_number(key) % lines_.size();
  for (size_t i = 0; i < static_cast<size_t>(key.lines); ++i) text += "\n" + lines_[(start + i) % lines_.size()];
  return {text + "\n\n" + std::string(kFileTail), {}};
}

std::string sha256_of(const Prompt& prompt) { return codec::sha256(prompt.messages.is_null() ? prompt.text : json::dump(prompt.messages)).hex(); }

}  // namespace dsf::bench
