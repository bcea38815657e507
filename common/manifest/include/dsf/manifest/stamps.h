#pragma once
// Stamps: which files of a folder were hashed and found right, and what stat() said of them at that time. A file that
// still looks the same needs no second hash for a quick answer; it never replaces a full verification.
//
// Kept in DIR/.cache/verify/stamps.json (schema "hub-stamps"). Plain values; any thread; one writer at a time, which
// replaces the file as a whole. Source: hub.md 5.5.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::manifest {

inline constexpr std::string_view kStampsSchema = "hub-stamps";
inline constexpr std::string_view kStampsPath = ".cache/verify/stamps.json";  // below the folder

// What identifies a file's state without reading it. ctime is part of it because mtime can be set back.
struct FileState {
  uint64_t dev = 0, inode = 0, size = 0;
  int64_t mtime_ns = 0, ctime_ns = 0;
  bool operator==(const FileState&) const = default;
};
Result<FileState> file_state(const std::filesystem::path& path);  // Errors: kMissing, kLocal

struct Stamp {
  std::string path;  // relative to the folder
  FileState state;
  std::string sha256;    // of the content, which was the expected one
  std::string evidence;  // what expected it: "pin", "SHA256SUMS", ...
  std::string level, read_mode, verified_at, tool, boot_id;
  int64_t verified_ms = 0;  // verified_at, Unix milliseconds
};
using Stamps = std::map<std::string, Stamp>;  // by path

// True when the file has not been touched since: equal state, last written more than two seconds before it was
// verified, and on a network file system (whose attributes may be cached elsewhere) no more than a day ago.
bool holds(const Stamp& stamp, const FileState& now, int64_t now_ms, bool network_fs);
bool on_network_fs(const std::filesystem::path& dir);

// An absent file is an empty set. Errors: kContent (malformed, newer version).
Result<Stamps> load_stamps(const std::filesystem::path& dir);
Result<void> write_stamps(const std::filesystem::path& dir, const Stamps& stamps);  // Errors: kLocal

// The digests of those of these files that somebody has proven since they last changed, by path: a stamp of dsf-verify
// or the record of dsf-fetch speaks for them. Paths are relative to dir; malformed stamps and records speak for
// nothing.
std::map<std::string, std::string> proven_files(const std::filesystem::path& dir,
                                                const std::vector<std::string>& paths);
// The others.
std::vector<std::string> unproven_files(const std::filesystem::path& dir, const std::vector<std::string>& paths);

}  // namespace dsf::manifest
