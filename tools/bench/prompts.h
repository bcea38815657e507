#pragma once
// Prompt generator "bench-prompt/1": the same text for the same key on every machine, for every engine (bench.md 2.4).
//
// Pure functions, any thread. A key holds no engine, label, model, URL, host or time, so two engines get equal bytes; it does hold
// phase, thinking mode, concurrency, repeat and slot, so no two measured requests of a run share a prompt prefix.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsf::bench {

inline constexpr std::string_view kPromptGenerator = "bench-prompt/1";

struct PromptKey {
  uint64_t seed = 1;
  int64_t lines = 27;       // body lines after the nonce line
  std::string phase;        // "decode", "prefill" or "warmup"
  std::string thinking;     // the --thinking value as given: "off", "75", ...
  int64_t c = 1;            // concurrency level
  int64_t repeat = 0;
  int64_t slot = 0;
  std::string style = {};   // empty: the word generator; else name and digest of the source, "bench-file/1|sha256=..."
  std::string text() const;  // the ASCII key string that is hashed
};

// One user message, ASCII, no trailing newline; 2157 bytes for 27 lines.
std::string prompt_text(const PromptKey& key);
// The same with n_words words in the body instead of whole lines, for prompts that are fitted to a number of tokens.
std::string prompt_text_of_words(const PromptKey& key, int64_t n_words);
// Eight words that no other key has: the first line of every made prompt.
std::string nonce_line(const PromptKey& key);
// The number behind a key, for choices that must be the same everywhere.
uint64_t key_number(const PromptKey& key);

// SHA-256 of the concatenated "<hex>\n" of the prompt hashes in order (C ascending, slot ascending).
std::string pass_hash(const std::vector<std::string>& prompt_sha256_hex);

// The two cheapest vectors of the specification; run at every start, so that a miscompiled generator cannot publish numbers.
bool prompt_selftest();

}  // namespace dsf::bench
