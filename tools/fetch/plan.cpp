#include "tools/fetch/plan.h"

#include <sys/stat.h>

#include "dsf/codec/sha256.h"

namespace dsf::fetch {

uint64_t Plan::total_bytes() const {
  uint64_t sum = 0;
  for (const Wanted& w : wanted) sum += w.entry.size;
  return sum;
}

Result<void> compare(const Wanted& w, const std::string& sha256, const std::string& git_sha1,
                     const std::string& subject) {
  const auto differ = [&](const char* kind, const std::string& want, const std::string& got) {
    return fail(Code::kContent, subject, std::string(kind) + " differs (want " + want + ", got " + got + ")",
                "run the command again; if it stays, report it to the repository's owner", "digest_mismatch");
  };
  if (!w.entry.sha256.empty() && w.entry.sha256 != sha256) return differ("sha256", w.entry.sha256, sha256);
  if (!w.entry.git_sha1.empty() && w.entry.git_sha1 != git_sha1)
    return differ("git blob id", w.entry.git_sha1, git_sha1);
  return {};
}

Result<void> compare_stored(const std::string& received, const std::string& stored, const std::string& subject) {
  if (received == stored) return {};
  return fail(Code::kContent, subject,
              "was received right and stored wrong (received " + received + ", stored " + stored + ")",
              "check the disk or mount", "digest_mismatch");
}

Result<Checked> check_existing(const Target& target, const Wanted& w, const manifest::FetchedFile* stamp, bool hash) {
  DSF_TRY(const std::optional<struct stat> st, target.stat_file(w.entry.path));
  if (!st) return Checked{};
  if (!S_ISREG(st->st_mode) || static_cast<uint64_t>(st->st_size) != w.entry.size)
    return Checked{Action::kConflict, {}, false};
  const int64_t mtime_ns = int64_t{st->st_mtim.tv_sec} * 1'000'000'000 + st->st_mtim.tv_nsec;
  const bool unchanged = stamp != nullptr && stamp->size == w.entry.size && stamp->mtime_ns == mtime_ns &&
                         stamp->inode == st->st_ino && stamp->dev == st->st_dev;
  const std::string git = stamp != nullptr ? stamp->git_sha1 : std::string();
  if (unchanged && compare(w, stamp->sha256, git, w.entry.path)) return Checked{Action::kAdopt, stamp->sha256, false};
  if (!hash) return Checked{Action::kAdopt, {}, false};
  DSF_TRY(const codec::Digest digest, codec::sha256_file(target.dir() / w.entry.path));
  std::string git_sha1;
  if (!w.entry.git_sha1.empty()) {
    DSF_TRY(git_sha1, codec::git_blob_sha1_file(target.dir() / w.entry.path));
  }
  if (!compare(w, digest.hex(), git_sha1, w.entry.path)) return Checked{Action::kConflict, {}, true};
  return Checked{Action::kAdopt, digest.hex(), true};
}

}  // namespace dsf::fetch
