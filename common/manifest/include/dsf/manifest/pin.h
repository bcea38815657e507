#pragma once
// Pins: what must be obtained, committed and reviewed (schema "hub-pin", version 1), and deployments: several pins with
// a subfolder each (schema "hub-deployment", version 1). Source: hub.md 4.2; JSON Schema in manifests/schema/.
//
// Plain values that own their text; any thread. Digests are lower-case hex text (this library knows no hash functions).
// A pin has one valid byte form, that of write(); its identity is the SHA-256 of those bytes. "Open" means: not
// published yet. An open revision, size or digest is null in the file; `pin --update` of dsf-fetch fills it. Errors:
// kUsage for a malformed pin (with the path of the member), kContent for an unknown schema or a newer version, kMissing
// when the file is absent.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"
#include "dsf/manifest/path.h"

namespace dsf::manifest {

inline constexpr uint64_t kMaxPinBytes = uint64_t{64} << 20;

enum class Role { kWeights, kIndex, kConfig, kTokenizer, kTemplate, kCode, kLicense, kDoc, kOther };
std::string_view role_name(Role role);  // "weights", ...
std::optional<Role> role_from(std::string_view name);
Role guess_role(std::string_view path);

// Facts about a safetensors header, so that it can be proved without the rest of the file.
struct SafetensorsFacts {
  uint64_t header_bytes = 0;  // 8 + N
  std::string header_sha256;
  uint64_t tensors = 0;
  bool operator==(const SafetensorsFacts&) const = default;
};

// One tensor's place and content, for selective fetch.
struct PinnedTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // data_offsets: bytes after the header
  std::string sha256;
  bool operator==(const PinnedTensor&) const = default;
};

// Digests of equal pieces: sha256 names the side file of raw 32-byte digests.
struct PieceDigests {
  uint64_t size = 0;  // bytes of a piece
  std::string sha256;
  bool operator==(const PieceDigests&) const = default;
};

struct PinFile {
  std::string path;              // relative, safe (path_problem)
  std::optional<uint64_t> size;  // bytes; nullopt: open
  std::string sha256;            // of the content; empty: open
  std::string git_sha1;          // git blob id of a file that is not in LFS; empty otherwise
  std::string pointer_git_sha1;  // git blob id of the LFS pointer; informative
  std::string xet_hash;          // informative; never a digest of the bytes
  bool lfs = false;
  Role role = Role::kOther;
  std::optional<SafetensorsFacts> safetensors;
  std::vector<PinnedTensor> tensors;
  std::optional<PieceDigests> pieces;
  bool open() const { return !size || sha256.empty(); }
  bool operator==(const PinFile&) const = default;
};

struct PinSource {
  std::string endpoint = "https://huggingface.co";
  std::string repo;  // "namespace/name"
  std::string repo_type = "model";
  std::string requested_revision = "main";
  std::string revision;  // 40 lower-case hex digits; empty: open
  std::string license;   // informative; may be empty
  bool operator==(const PinSource&) const = default;
};

// How many files of a kind the finished pin must name; checked by `pin --update` and by every get.
struct Expectation {
  std::string glob;
  uint64_t count = 0;
  bool operator==(const Expectation&) const = default;
};

struct Pin {
  std::string name;
  PinSource source;
  bool complete = false;       // files is the whole repository at that revision
  std::vector<PinFile> files;  // sorted by path in byte order
  Filter select;               // which files of the repository belong to the pin: what `pin --update` applies
  std::vector<Expectation> expect;
  json::Object extra;  // top-level members whose names begin with "x_", kept as they are

  // Something is not published yet: revision, a size, a digest, or an expectation that the files do not meet.
  bool open() const;
  // What is open, one clause each ("revision", "model-00047-of-00048.safetensors: sha256", ...), at most limit of them.
  std::vector<std::string> open_items(size_t limit = 5) const;
  uint64_t total_bytes() const;  // of the files whose size is known
  const PinFile* find(std::string_view path) const;
  void sort();
};

// Strict: unknown members (but x_...), duplicate keys, unsorted files and unsafe paths are errors. subject names the
// text in errors.
Result<Pin> parse_pin(std::string_view text, std::string_view subject);
Result<Pin> load_pin(const std::filesystem::path& path);
// The one byte form: sorted keys, two spaces, final newline.
std::string write(const Pin& pin);
// kContent when text is not byte for byte what write(parse_pin(text)) gives.
Result<void> check_canonical(std::string_view text, std::string_view subject);

// What changed between two pins of the same files, one line each, for `pin --update`.
struct PinDiff {
  std::vector<std::string> lines;
  bool content_changed = false;  // a digest or size that was known became another
  bool empty() const { return lines.empty(); }
};
PinDiff diff(const Pin& before, const Pin& after);

// A pin and the subfolder of the target into which it goes ("" for a pin used alone).
struct PlacedPin {
  std::filesystem::path file;  // where the pin was read from
  std::string subfolder;
  Pin pin;
  std::string bytes;  // the file's content, for its digest
};
struct Deployment {
  std::string name;  // of the deployment, or of the single pin
  std::vector<PlacedPin> pins;
};
// path: a deployment (whose pins lie beside it) or a single pin.
Result<Deployment> load_deployment(const std::filesystem::path& path);

// Indented JSON with object keys in byte order and a final newline; see hub.md 4.2 "canonical bytes".
std::string canonical_json(const json::Value& value);

}  // namespace dsf::manifest
