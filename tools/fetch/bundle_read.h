#pragma once
// A bundle opened for reading: its volumes, its list, and bytes at any place of the raw stream. Source: hub.md 7.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/fetch/bundle_layout.h"
#include "tools/fetch/bundle_volume.h"

namespace dsf::fetch {

class BundleReader {
 public:
  // Opens the volumes that are there; a damaged or absent one is a problem to report, the rest stays readable. Errors:
  // those of the first volume, without which nothing is known.
  static Result<BundleReader> open(const std::filesystem::path& bundle);

  const Bundle& bundle() const { return bundle_; }
  const std::string& id() const { return id_; }
  const std::vector<Member>& members() const { return members_; }
  const std::vector<Frame>& frames() const { return frames_; }
  const std::vector<Volume>& volumes() const { return volumes_; }  // in order, gaps possible
  const std::vector<Error>& problems() const { return problems_; }

  // Raw bytes of a frame and whether they have the fixed bytes they should. Errors: kContent (damaged), kMissing (in a
  // volume that is not there).
  Result<std::string> read(const Frame& frame, codec::Sha256* whole = nullptr) const;
  // The volume that holds this frame, or nullptr.
  const Volume* volume_of(const Frame& frame) const;
  // Signature of the pin against a public key.
  Result<void> check_signature(const std::filesystem::path& key) const;

 private:
  BundleReader() = default;
  Result<void> read_list(const std::filesystem::path& path);
  std::vector<Volume> volumes_;
  std::vector<Error> problems_;
  Bundle bundle_;
  std::string id_;
  std::vector<Member> members_;
  std::vector<Frame> frames_;
};

// The part of a frame that is content of its member: offset in the file, and the bytes.
std::pair<uint64_t, std::string_view> content_of(const Member& m, const Frame& f, std::string_view raw);

}  // namespace dsf::fetch
