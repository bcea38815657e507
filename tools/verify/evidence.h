#pragma once
// What a folder should hold, from the best source there is: pin, then SHA256SUMS, then the record that dsf-fetch left,
// then (only when asked) what the hf client noted.
// Source: hub.md 5.1 "order of evidence".
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/codec/sha256.h"
#include "dsf/manifest/record.h"
#include "tools/verify/options.h"

namespace dsf::verify {

struct Expected {
  std::optional<uint64_t> size{};
  std::string sha256{};         // empty: not known
  std::string git_sha1{};       // git blob id, when that is what is known
  std::string header_sha256{};  // of the safetensors header with its length, when a pin has it
  uint64_t header_bytes = 0;
  uint64_t piece_bytes = 0;             // with pieces
  std::vector<codec::Digest> pieces{};  // of the content, when the pin has them
};

// Where the expected files come from, for level hub and for repair.
struct Origin {
  std::string repo, revision;
  std::string subfolder;  // of the verified folder, with '/' at the end, or empty
  bool complete = false;  // the files are the whole repository
};

struct Evidence {
  std::string kind;                         // "pin", "SHA256SUMS", "fetch record", "none"
  std::map<std::string, Expected> files{};  // by relative path
  bool complete = false;                    // other files are extra
  std::vector<manifest::Input> inputs{};
  std::vector<Origin> origins{};
  std::string pin_sha256{};
  std::vector<std::string> unchecked{};  // what this evidence cannot prove
};

// Errors: kUsage (pin malformed or open), kContent (unknown schema, sums malformed), kMissing (a file that was named on
// the command line).
Result<Evidence> load_evidence(const Plan& plan);

}  // namespace dsf::verify
