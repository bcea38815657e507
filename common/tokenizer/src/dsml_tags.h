#pragma once
// Recognises the tags of a completion at one place of the text, whole or so far (serving.md 3.2).
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dsf::tokenizer {

enum Tag : uint8_t {
  kNoTag = 0,
  kThinkOpenTag = 1,     // <think>
  kThinkCloseTag = 2,    // </think>
  kBlockOpenTag = 4,     // <｜DSML｜ calls>
  kBlockCloseTag = 8,    // </｜DSML｜ calls>
  kInvokeOpenTag = 16,   // <｜DSML｜ invoke name="     the name follows
  kInvokeCloseTag = 32,  // </｜DSML｜ invoke>
  kParamOpenTag = 64,    // <｜DSML｜ parameter name="  the key follows
  kParamCloseTag = 128,  // </｜DSML｜ parameter>
};

struct TagMatch {
  Tag tag = kNoTag;
  size_t size = 0;       // bytes of the tag
  bool partial = false;  // no tag yet, but more text may make one
};

// text begins with '<'. live: the tags to look for, or-ed. Looks at a bounded number of bytes.
TagMatch match_tag(std::string_view text, unsigned live);

}  // namespace dsf::tokenizer
