#pragma once
// The message list of a request, made uniform: serving.md 2.1 steps 1 to 6.
#include <optional>
#include <string>
#include <vector>

#include "dsf/tokenizer/prompt.h"

namespace dsf::tokenizer {

enum class Role { kSystem, kDeveloper, kUser, kAssistant, kReminder };

// Text, or an image when image is set.
struct Piece {
  std::string text;
  const json::Value* image = nullptr;  // the part object, in the request
};
struct Block {
  bool tool_result = false;
  std::string id;             // of the call that a tool result answers
  std::vector<Piece> pieces;  // joined by blank lines
};

struct Message {
  Role role = Role::kUser;
  std::string content;        // of all roles but kUser
  std::vector<Block> blocks;  // of kUser
  std::string reasoning;      // of kAssistant
  const json::Value* calls = nullptr;  // of kAssistant; a non-empty array, or nullptr
  std::string calls_path;
  std::vector<Tool> tools;    // of kSystem and kDeveloper
  const json::Value* response_schema = nullptr;  // the same
  Control task = Control::kText;  // of kUser and kDeveloper
  bool open = false;          // of the last kAssistant: it is continued
};

struct Conversation {
  std::vector<Message> messages;
  bool any_tools = false;
  ptrdiff_t last_user = -1;
};

// Views in the result point into the request. Errors: kUsage with the path as subject.
Result<Conversation> normalize(const PromptRequest& request, const PromptOptions& options);

Unexpected bad_request(std::string path, std::string what);

}  // namespace dsf::tokenizer
