#include "char_class.h"

#include <algorithm>
#include <memory>

namespace dsf::tokenizer {
namespace {

struct Range {
  uint32_t first, last;
  uint8_t classes;
};
constexpr Range kRanges[] = {
#include "unicode_classes.inc"
};

std::unique_ptr<std::array<uint8_t, kCodePoints>> build() {
  auto table = std::make_unique<std::array<uint8_t, kCodePoints>>();
  for (const Range& r : kRanges) std::fill(table->begin() + r.first, table->begin() + r.last + 1, r.classes);
  const auto add = [&](uint32_t first, uint32_t last, uint8_t bit) {
    for (uint32_t c = first; c <= last; ++c) (*table)[c] |= bit;
  };
  add('\n', '\n', kNewline);
  add('\r', '\r', kNewline);
  add(0x4E00, 0x9FA5, kKana);
  add(0x3040, 0x309F, kKana);
  add(0x30A0, 0x30FF, kKana);
  return table;
}

}  // namespace

const std::array<uint8_t, kCodePoints>& char_classes() {
  static const std::unique_ptr<std::array<uint8_t, kCodePoints>> table = build();
  return *table;
}

}  // namespace dsf::tokenizer
