#include "tools/serve/dummy_tokenizer.h"

#include "dsf/json/json.h"
#include "dsf/tokenizer/prompt.h"

namespace dsf::serve {
namespace {

std::string utf8(uint32_t code) {  // below U+0800
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The spelling of a byte in byte-level BPE: itself where it is printable, else a letter from U+0100 on.
json::Object byte_vocabulary(int64_t first_id) {
  json::Object vocab;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    vocab.emplace_back(utf8(itself ? b : next++), first_id + b);
  }
  return vocab;
}

json::Value typed(const char* type) {
  json::Value v = json::Value::object();
  v.set("type", type);
  return v;
}

json::Value split(const char* regex) {
  json::Value pattern = json::Value::object();
  pattern.set("Regex", regex);
  json::Value s = typed("Split");
  s.set("pattern", std::move(pattern));
  s.set("behavior", "Isolated");
  s.set("invert", false);
  return s;
}

json::Value byte_level() {
  json::Value b = typed("ByteLevel");
  b.set("add_prefix_space", false);
  b.set("trim_offsets", true);
  b.set("use_regex", false);
  return b;
}

json::Value added_token(int64_t id, std::string_view content) {
  json::Value t = json::Value::object();
  t.set("id", id);
  t.set("content", std::string(content));
  for (const char* off : {"single_word", "lstrip", "rstrip", "normalized"}) t.set(off, false);
  t.set("special", true);
  return t;
}

}  // namespace

std::string byte_tokenizer_json() {
  using tokenizer::Control;
  json::Array added;
  int64_t id = 0;
  const auto add = [&](std::string_view content) { added.push_back(added_token(id++, content)); };
  add(control_text(Control::kBos));  // 0 and 1 are the configuration's own ids for these two
  add(control_text(Control::kEos));
  for (int c = static_cast<int>(Control::kSystem); c < tokenizer::kControlCount; ++c) add(control_text(static_cast<Control>(c)));
  json::Value model = typed("BPE");
  for (const char* none : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) model.set(none, nullptr);
  model.set("fuse_unk", false);
  model.set("byte_fallback", false);
  model.set("vocab", byte_vocabulary(id));
  model.set("merges", json::Array{});
  json::Value pre = typed("Sequence");
  // A tokenizer needs a pattern; pieces do not matter to single bytes.
  pre.set("pretokenizers", json::Array{split("\\s+"), byte_level()});
  json::Value root = json::Value::object();
  root.set("version", "1.0");
  root.set("added_tokens", std::move(added));
  root.set("pre_tokenizer", std::move(pre));
  root.set("decoder", byte_level());
  root.set("model", std::move(model));
  return json::dump(root);
}

}  // namespace dsf::serve
