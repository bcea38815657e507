#pragma once
// DSF_CHECK: an invariant whose failure is a bug in this program. Prints the condition, the place and the words, then aborts,
// in release builds too. Never use it for what a file, a peer or a user can cause: that is a Result.
#include <string_view>

namespace dsf {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string_view words);
}

#define DSF_CHECK(cond, words)                                          \
  do {                                                                  \
    if (!(cond)) ::dsf::check_failed(#cond, __FILE__, __LINE__, words); \
  } while (false)
