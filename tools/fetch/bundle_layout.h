#pragma once
// What a bundle is: a POSIX tar stream that is fixed by its list of files, cut into zstd frames, cut into volumes.
// Source: hub.md 7.
//
//   raw stream    BUNDLE.json | SHA256SUMS | manifest.json | [manifest.json.sig] | files, small roles first | 1024
//   zeros frames        never span two members, at most 16 MiB of raw bytes each; each one a zstd frame with a checksum
//   volume        skippable frame {"bundle","index","raw_begin",...} | frames | seek table (zstd's seekable format)
//
// So `cat X.bundle.[0-9]* | zstd -dc | tar -x` reads it without this program, one file can be checked without the rest,
// and a lost volume costs the files that lie in it. Everything here is computed; nothing touches the disk.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/manifest/pin.h"

namespace dsf::fetch {

inline constexpr uint64_t kBundleFrameBytes = 16 << 20;

struct BundleFile {
  std::string path;
  uint64_t size = 0;
  std::string sha256;
};

struct Bundle {
  std::string name, repo, revision;
  std::vector<BundleFile> files;
  std::vector<BundleFile> left_out;  // the receiver has their content already
  std::string manifest;              // the pin's bytes
  std::string signature;             // of the pin; empty without one
  std::string json() const;          // BUNDLE.json; its SHA-256 names the bundle
};

// A pin and its signature as a bundle, in stream order; files whose SHA-256 the base has are left out. The pin must be
// closed.
Bundle bundle_of(const manifest::Pin& pin, const std::string& pin_bytes, const std::string& signature,
                 const manifest::Pin* base);

// The list from BUNDLE.json, without manifest and signature (their sizes are in sizes). Errors: kContent.
struct BundleSizes {
  uint64_t manifest = 0, signature = 0;
};
Result<Bundle> parse_bundle(std::string_view json, BundleSizes& sizes, std::string_view subject);

// One tar member: its header blocks, then size content bytes, then zeros up to the next 512.
struct Member {
  std::string path, header;
  std::optional<size_t> file;  // index into Bundle::files; nullopt: inline text
  std::string text;            // of inline members; empty when only the size is known yet
  uint64_t begin = 0;          // of the header in the raw stream
  uint64_t size = 0;
  uint64_t content() const { return begin + header.size(); }
  uint64_t end() const { return content() + (size + 511) / 512 * 512; }
};

// Members in stream order; the last one is the trailer (no path). sizes: for a bundle read back, whose manifest text is
// not known yet.
std::vector<Member> members_of(const Bundle& bundle, const std::string& json, const BundleSizes& sizes);

struct Frame {
  size_t member = 0;
  uint64_t begin = 0, end = 0;  // raw
};
std::vector<Frame> frames_of(const std::vector<Member>& members);

// Bytes of a member that are not file content, at raw offset: header, inline text, padding, trailer.
std::string fixed_bytes(const Member& m, uint64_t begin, uint64_t end);

// Header blocks of one regular file: ustar, with a pax block before it for long names and sizes from 8 GiB.
std::string tar_header(const std::string& path, uint64_t size);

}  // namespace dsf::fetch
