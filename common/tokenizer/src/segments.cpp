// Markers: their spelling, their ids, and the way from segments to token ids.
#include "dsf/base/check.h"
#include "dsf/tokenizer/prompt.h"
#include "segment_builder.h"

namespace dsf::tokenizer {
namespace {

constexpr std::string_view kSpelling[kControlCount] = {
    "",          "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜System｜>",    "<｜User｜>",   "<｜Assistant｜>",
    "<think>",   "</think>",                "｜DSML｜",              "<｜latest_reminder｜>", "<｜deepseek_image｜>", "<｜action｜>",
    "<｜query｜>", "<｜authority｜>",         "<｜domain｜>",          "<｜title｜>",     "<｜read_url｜>",
};
constexpr int kLastRequired = static_cast<int>(Control::kDsml);

}  // namespace

std::string_view control_text(Control control) { return kSpelling[static_cast<size_t>(control)]; }

Result<ControlIds> ControlIds::find(const Tokenizer& tokenizer) {
  ControlIds out;
  std::string missing;
  out.ids_[0] = -1;
  for (int i = 1; i < kControlCount; ++i) {
    const auto id = tokenizer.find(kSpelling[i]);
    out.ids_[i] = id.value_or(-1);
    if (!id && i <= kLastRequired) missing += (missing.empty() ? "" : ", ") + std::string(kSpelling[i]);
  }
  if (!missing.empty()) {
    return fail(Code::kContent, tokenizer.subject(), "special tokens are missing: " + missing, "take tokenizer.json from the checkpoint again",
                "special_tokens");
  }
  return out;
}

void SegmentBuilder::markup(std::string_view markup) {
  while (!markup.empty()) {
    size_t at = markup.size();
    Control found = Control::kText;
    for (const Control c : {Control::kDsml, Control::kThinkOpen, Control::kThinkClose}) {
      if (const size_t p = markup.find(control_text(c)); p < at) {
        at = p;
        found = c;
      }
    }
    text(markup.substr(0, at));
    if (found == Control::kText) return;
    control(found);
    markup.remove_prefix(at + control_text(found).size());
  }
}

std::string RenderedPrompt::text() const {
  std::string out;
  for (const Segment& s : segments) out += s.control == Control::kText ? std::string_view(s.text) : control_text(s.control);
  return out;
}

std::vector<TokenId> encode_segments(std::span<const Segment> segments, const Tokenizer& tokenizer, const ControlIds& ids,
                                     bool parse_special) {
  std::vector<TokenId> out;
  std::string text;
  const auto flush = [&] {
    tokenizer.encode_append(text, parse_special ? Specials::kParse : Specials::kOff, out);
    text.clear();
  };
  for (const Segment& s : segments) {
    if (s.control != Control::kText && !parse_special && ids[s.control] >= 0) {
      flush();
      out.push_back(ids[s.control]);
    } else {
      text += s.control == Control::kText ? std::string_view(s.text) : control_text(s.control);
    }
  }
  flush();
  return out;
}

}  // namespace dsf::tokenizer
