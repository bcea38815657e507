#pragma once
// Records: what a tool did. Every record file opens with schema, version, created_by, inputs (path, digest) and items;
// further members follow. Readers ignore unknown members. Source: conventions.md 1, hub.md 4.4.
//
// Plain values; any thread. A record is never proof of content, only a statement of when, from where and how it was
// checked. Errors: kContent (malformed, other schema, newer version), kMissing when the file is absent.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"

namespace dsf::manifest {

struct Input {
  std::string path, sha256;  // sha256 empty: not hashed (null in the file)
};

struct Record {
  std::string schema;  // "hub-record", "hub-verify", "engram-pack", "preflight", ...
  int64_t version = 1;
  std::string created_by;  // cli::tool_id(): "dsf-fetch/0.1.0"
  std::vector<Input> inputs;
  json::Array items;  // objects whose members the schema defines
  json::Object more;  // further top-level members, written after items in this order
};

std::string write(const Record& record);  // indented, final newline
json::Value to_json(const Record& record);
// schema: the one that is wanted; max_version: the newest this reader knows.
Result<Record> parse_record(std::string_view text, std::string_view subject, std::string_view schema,
                            int64_t max_version = 1);
Result<Record> load_record(const std::filesystem::path& path, std::string_view schema, int64_t max_version = 1);

// ---- what dsf-fetch writes: DIR/.cache/fetch/record.json, schema "hub-record" ----

inline constexpr std::string_view kFetchRecordSchema = "hub-record";
inline constexpr std::string_view kFetchRecordPath = ".cache/fetch/record.json";  // below the target folder

struct FetchedFile {
  std::string path;
  uint64_t size = 0;
  std::string sha256;
  std::string git_sha1;     // empty for LFS files
  std::string verified;     // "received": digest of the received stream; "stored": of bytes read back from disk
  std::string verified_at;  // RFC 3339
  std::string origin;       // "network", "adopted"
  std::string host;         // where the bytes came from; empty unless origin is network
  double seconds = 0;
  // stat() at that time, for stamps
  int64_t mtime_ns = 0;
  uint64_t inode = 0, dev = 0;
};

struct FetchRecord {
  std::string created_by;
  std::vector<Input> inputs;         // the pin, when there was one
  std::string pin_name, pin_sha256;  // empty without a pin
  std::string repo, revision, endpoint;
  std::string started, finished;
  bool tls_verified = true;
  bool complete = false;  // the files are the whole repository at that revision
  std::vector<FetchedFile> files;
};

Record to_record(const FetchRecord& record);
Result<FetchRecord> fetch_record_from(const Record& record, std::string_view subject);
// From the target folder. kMissing when dsf-fetch has left no record there.
Result<FetchRecord> load_fetch_record(const std::filesystem::path& dir);

}  // namespace dsf::manifest
