#pragma once
// A tokenizer for engines with random weights: a token per byte, and the control tokens of the release. Its text is a tokenizer.json.
#include <string>

namespace dsf::serve {

std::string byte_tokenizer_json();

}  // namespace dsf::serve
