#pragma once
// Character classes of the pre-tokenizer, one byte per code point.
#include <array>
#include <cstdint>

namespace dsf::tokenizer {

enum CharClass : uint8_t {
  kLetter = 1,
  kMark = 2,
  kNumber = 4,
  kPunctuation = 8,
  kSymbol = 16,
  kSpace = 32,    // White_Space
  kNewline = 64,  // CR and LF
  kKana = 128,    // the ideograph and kana ranges of the release's second split
};

inline constexpr uint32_t kCodePoints = 0x110000;
// Indexed by code point. Built once, on first use; about 1 MiB, of which ordinary text touches a few pages.
const std::array<uint8_t, kCodePoints>& char_classes();

}  // namespace dsf::tokenizer
