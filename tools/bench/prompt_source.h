#pragma once
// Where the text of prompts comes from: the word generator of the specification, slices of a text file, or the lines of a data set (bench.md 2.4).
// Read once before the run; then pure functions, any thread. The digest of a file is part of every key made from it, so two runs with equal prompt
// hashes used the same file.
#include <string>
#include <vector>

#include "dsf/json/json.h"
#include "tools/bench/prompts.h"

namespace dsf::bench {

struct Prompt {
  std::string text;      // content of the one user message
  json::Value messages;  // a whole conversation instead; null: the text alone
};

class PromptSource {
 public:
  PromptSource() = default;  // the word generator
  // style: "words", "file:PATH" (lines of text) or "dataset:PATH" (JSON lines with "prompt", "messages" or "conversations").
  // Errors: kUsage for an unknown style or an empty file, kMissing, kContent.
  static Result<PromptSource> load(const std::string& style);

  const std::string& style() const { return style_; }    // for settings: "words", or name and digest
  std::string key_style() const { return style_ == "words" ? std::string() : style_; }
  // ordinal: place of the request in the whole run; a data set gives each place another line.
  Prompt make(const PromptKey& key, int64_t ordinal) const;
  // How many different prompts there are; 0: no limit.
  size_t size() const { return items_.size(); }

 private:
  std::string style_ = "words";
  std::vector<std::string> lines_;  // of a text file
  std::vector<Prompt> items_;       // of a data set
};

// SHA-256 of what a request body asks: of the content of its only message, else of its messages as compact JSON.
std::string sha256_of(const Prompt& prompt);

}  // namespace dsf::bench
