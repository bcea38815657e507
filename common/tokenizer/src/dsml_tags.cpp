#include "dsml_tags.h"

namespace dsf::tokenizer {
namespace {

// White space inside one tag is bounded, so that a partial tag is a bounded amount of text to look at again.
constexpr int kMaxSpaces = 64;

class Matcher {
 public:
  explicit Matcher(std::string_view text) : text_(text) {}

  // Each returns whether the text matches; at the end of the text ended() tells that more text could.
  bool literal(std::string_view want) {
    for (const char c : want) {
      if (pos_ == text_.size()) {
        ended_ = true;
        return false;
      }
      if (text_[pos_] != c) return false;
      ++pos_;
    }
    return true;
  }
  void optional_space() {
    if (pos_ < text_.size() && text_[pos_] == ' ') ++pos_;
  }
  bool spaces(int at_least) {
    int n = 0;
    while (n < kMaxSpaces && pos_ < text_.size() && std::string_view(" \t\n\r").find(text_[pos_]) != std::string_view::npos) ++pos_, ++n;
    if (n >= at_least) return true;
    ended_ = ended_ || pos_ == text_.size();
    return false;
  }
  bool block_name() {
    const size_t start = pos_;
    for (const std::string_view name : {"calls", "tool_calls", "function_calls"}) {
      pos_ = start;
      if (literal(name)) return true;
    }
    return false;
  }
  bool ended() const { return ended_; }
  size_t pos() const { return pos_; }

 private:
  std::string_view text_;
  size_t pos_ = 0;
  bool ended_ = false;
};

bool matches(Tag tag, Matcher& m) {
  switch (tag) {
    case kThinkOpenTag: return m.literal("<think>");
    case kThinkCloseTag: return m.literal("</think>");
    default: break;
  }
  const bool opens = tag == kBlockOpenTag || tag == kInvokeOpenTag || tag == kParamOpenTag;
  if (!m.literal(opens ? "<｜DSML｜" : "</｜DSML｜")) return false;
  m.optional_space();
  if (tag == kBlockOpenTag || tag == kBlockCloseTag) {
    if (!m.block_name()) return false;
  } else if (!m.literal(tag == kInvokeOpenTag || tag == kInvokeCloseTag ? "invoke" : "parameter")) {
    return false;
  }
  if (tag == kInvokeOpenTag || tag == kParamOpenTag) return m.spaces(1) && m.literal("name=\"");
  return m.spaces(0) && m.literal(">");
}

}  // namespace

TagMatch match_tag(std::string_view text, unsigned live) {
  TagMatch out;
  for (unsigned bit = 1; bit <= kParamCloseTag; bit <<= 1) {
    if (!(live & bit)) continue;
    Matcher m(text);
    if (matches(static_cast<Tag>(bit), m)) return {static_cast<Tag>(bit), m.pos(), false};
    out.partial = out.partial || m.ended();
  }
  return out;
}

}  // namespace dsf::tokenizer
