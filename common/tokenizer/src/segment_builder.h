#pragma once
// Grows a list of segments; neighbouring text becomes one segment, because it is tokenized as one string.
#include <string_view>
#include <vector>

#include "dsf/tokenizer/prompt.h"

namespace dsf::tokenizer {

class SegmentBuilder {
 public:
  void text(std::string_view text) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().control != Control::kText) segments_.push_back({});
    segments_.back().text += text;
  }
  void control(Control control) { segments_.push_back({control, {}}); }
  // Text of the template itself: ｜DSML｜, <think> and </think> in it are markers. Never give it user text.
  void markup(std::string_view markup);
  void append(std::vector<Segment> segments) {
    for (Segment& s : segments) s.control == Control::kText ? text(s.text) : control(s.control);
  }
  std::vector<Segment> take() { return std::move(segments_); }

 private:
  std::vector<Segment> segments_;
};

}  // namespace dsf::tokenizer
