#pragma once
// What dsf-verify has found: plain values, and their two forms (a record, lines for people). Source: hub.md 5.7.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "dsf/manifest/record.h"
#include "tools/verify/options.h"

namespace dsf::verify {

enum class Severity { kNote, kWarning, kError };

struct Finding {
  std::string code;  // "ST10", "IX03", ...: stable
  Severity severity = Severity::kError;
  std::string text;
};

struct FileReport {
  std::string path;           // relative to the folder
  std::string status = "ok";  // ok mismatch missing wrong_size not_regular unstable io_error extra
  std::optional<uint64_t> expected_size{}, size{};
  std::string expected_sha256{}, sha256{};  // empty: not known, not computed
  std::string detail{};                     // for io_error and unstable
  std::vector<Finding> findings{};
  bool structure_checked = false;
  bool by_git = false;  // proven by its git blob id, the only digest known
  uint64_t piece_bytes = 0;
  std::vector<uint64_t> bad_pieces{};  // indices, where the pin lists pieces
  bool bad() const;                    // status other than ok and extra, or a finding of severity error
};

struct Report {
  std::string evidence;  // "pin", "SHA256SUMS", "fetch record", "none"
  std::vector<manifest::Input> inputs;
  std::string pin_sha256;
  std::vector<FileReport> files;       // by path
  std::vector<std::string> unchecked;  // sentences: what this run did not prove
  std::string started;
  double seconds = 0;
  uint64_t hashed_bytes = 0;
  uint64_t seed = 0;  // of what was sampled
  bool asked_hub = false;
};

enum class Verdict { kOk, kWarnings, kFailed, kIoError };
Verdict verdict(const Report& report);
int exit_code(const Report& report, const Plan& plan);

manifest::Record to_record(const Report& report, const Plan& plan);
// Problems to err, one line each; the summary and what was not checked to out.
void print(const Report& report, const Plan& plan, std::ostream& out, std::ostream& err);

}  // namespace dsf::verify
