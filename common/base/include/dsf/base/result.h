#pragma once
// Result and Error: how this project reports a failure that a user can cause or fix.
//
// Owns nothing shared; values only, any thread. A function that can fail returns Result<T>; broken invariants use DSF_CHECK.
// Error::code is the process exit code (README.md lists them), so a tool's main only has to pass it on.
// Add context once, where the subject (file, URL, device) is known.
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace dsf {

// Exit codes, the same in every tool.
enum class Code : int {
  kOk = 0,
  kNo = 1,        // ran well, the answer is no
  kUsage = 2,     // command line, configuration or manifest wrong
  kRemote = 3,    // remote failed after retries, timeout, peer lost
  kRefused = 4,   // remote refused: credentials, gated, unknown repository or model
  kMissing = 5,   // something named is missing: file, tensor, revision, device
  kLocal = 6,     // local machine: disk, memory, permission, I/O
  kBusy = 7,      // another process holds the lock
  kContent = 8,   // content wrong: digest, malformed header, unknown schema version
  kOffline = 9,   // needed while --offline
  kWarnings = 10, // only warnings, under --warnings-as-errors
  kBug = 70,      // a bug in the tool
};

struct Error {
  Code code = Code::kBug;
  std::string subject;  // file, URL, tensor, device: what the error is about
  std::string what;     // what went wrong, one clause
  std::string fix;      // what to do; may be empty when nothing sensible can be said
  std::string cls;      // finer class for --json, for example "digest_mismatch"; may be empty

  // "subject: what; fix", always one line: control characters become '?'.
  std::string line() const;
};

using Unexpected = tl::unexpected<Error>;

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

inline Unexpected fail(Error e) { return Unexpected(std::move(e)); }
inline Unexpected fail(Code code, std::string subject, std::string what, std::string fix = {}, std::string cls = {}) {
  return Unexpected(Error{code, std::move(subject), std::move(what), std::move(fix), std::move(cls)});
}

// Exit code to report when several classes of error occurred: the first of 70, 8, 6, 4, 5, 3, 1 (then any other).
Code worst(Code a, Code b);

}  // namespace dsf

#define DSF_CAT_(a, b) a##b
#define DSF_CAT(a, b) DSF_CAT_(a, b)
// DSF_TRY(auto x, expr): x takes the value of expr (a Result), or the enclosing function returns its Error.
#define DSF_TRY(decl, expr)                                              \
  auto DSF_CAT(dsf_try_, __LINE__) = (expr);                             \
  if (!DSF_CAT(dsf_try_, __LINE__))                                      \
    return ::dsf::fail(std::move(DSF_CAT(dsf_try_, __LINE__)).error());  \
  decl = std::move(*DSF_CAT(dsf_try_, __LINE__))
// DSF_OK(expr): the same for Result<void>, or when the value is not wanted.
#define DSF_OK(expr)                                                                          \
  do {                                                                                        \
    if (auto dsf_ok_ = (expr); !dsf_ok_) return ::dsf::fail(std::move(dsf_ok_).error());      \
  } while (false)
