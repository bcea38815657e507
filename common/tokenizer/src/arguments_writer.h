#pragma once
// Spells one call's arguments as a JSON string, piece by piece (serving.md 3.3, 3.4): {"k": v, "k2": v2}.
//
// Every function returns the next fragment, possibly empty; together they are the arguments. Open string values are passed on as they come;
// a value whose meaning may still change is kept until its end.
#include <optional>
#include <string>
#include <string_view>

#include "dsf/tokenizer/tools.h"

namespace dsf::tokenizer {

class ArgumentsWriter {
 public:
  // tool: the declaration of the called tool, or nullptr for a tool that is not declared; must outlive this object.
  explicit ArgumentsWriter(const Tool* tool = nullptr) : tool_(tool) {}

  std::string begin(std::string key, bool is_string);
  std::string piece(std::string_view text);
  std::string end();
  // The call is complete.
  std::string close();
  int repaired() const { return repaired_; }

 private:
  enum class Mode { kStream, kKeep };
  struct Kept {
    std::string key, text;
    bool is_string;
  };
  std::string name_of(const std::string& key);
  std::string member(const Kept& kept);
  bool may_be_wrapper(std::string_view key) const;
  std::optional<std::string> unwrapped(const Kept& kept) const;

  const Tool* tool_;
  int n_members_ = 0;  // written
  Mode mode_ = Mode::kStream;
  Kept current_{};
  std::optional<Kept> wrapper_;  // a complete first parameter that may stand for the whole object
  int repaired_ = 0;
};

}  // namespace dsf::tokenizer
