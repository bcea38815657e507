#pragma once
// The byte-level alphabet (serving.md 1.3): every byte has a printable character.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace dsf::tokenizer {

// Appends the bytes a token string stands for, or the string itself when one of its characters is not in the alphabet. Returns which.
bool append_token_bytes(std::string_view token, std::string& out);

}  // namespace dsf::tokenizer
