#pragma once
// The journal beside a part file of a download or a pack: which pieces are on disk, with their digests. Text, one
// record a line, each ended by its CRC32C; the first bad line ends it (a torn write). Source: hub.md 3.3.
//
//   H 1 <whose pieces these are> 1a2b3c4d
//   P 17 <digest of the piece> 5e6f7081
//
// A piece line is a claim: resuming re-reads the piece and compares. So lines need no order towards the data's way to
// the disk, and are written at once; after a kill at most the pieces in flight are lost.
#include <filesystem>
#include <map>
#include <string>

#include "dsf/base/result.h"
#include "dsf/io/file.h"

namespace dsf::codec {

class Journal {
 public:
  // Opens or creates; claims of an existing journal are kept when its header is the same text, otherwise it starts
  // anew.
  static Result<Journal> open(const std::filesystem::path& path, const std::string& header);
  const std::map<uint64_t, std::string>& claims() const { return claims_; }
  // digest: one word, of the kind that the header says. One write; not for several threads.
  Result<void> add(uint64_t piece, const std::string& digest);
  Result<void> restart();  // drops all claims
  Result<void> sync() const { return io::sync(fd_); }

 private:
  Result<void> write_line(const std::string& payload);
  io::Fd fd_;
  std::filesystem::path path_;
  std::string header_;
  std::map<uint64_t, std::string> claims_;
};

}  // namespace dsf::codec
