#include "tools/verify/repair.h"

#include <algorithm>
#include <ostream>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "dsf/io/file.h"
#include "tools/verify/pieces.h"
#include "tools/verify/refetch.h"
#include "tools/verify/run.h"

namespace dsf::verify {
namespace {

namespace fs = std::filesystem;

// The bytes that must come from the Hub again; everything else is taken from the damaged file.
Result<std::vector<Range>> ranges_of(const fs::path& file, const Expected& e, uint64_t size, uint64_t request_bytes) {
  std::error_code ec;
  std::vector<Range> out;
  if (e.pieces.empty() || !fs::exists(file, ec)) {
    for (uint64_t at = 0; at < size; at += request_bytes) out.push_back({at, std::min(at + request_bytes, size)});
    return out;
  }
  DSF_TRY(const std::vector<uint64_t> bad, bad_pieces(file, e));
  for (const uint64_t i : bad) out.push_back({i * e.piece_bytes, std::min((i + 1) * e.piece_bytes, size)});
  return out;
}

// Everything of `from` that lies outside the ranges, at its place in `to`.
Result<void> copy_rest(const fs::path& from, const std::vector<Range>& ranges, uint64_t size, const io::Fd& to) {
  const auto in = io::open_read(from);
  if (!in) return {};  // nothing to take over: the ranges cover all of it
  std::vector<std::byte> buffer;
  uint64_t at = 0;
  const auto copy_to = [&](uint64_t end) -> Result<void> {
    while (at < end) {
      buffer.resize(std::min<uint64_t>(4 * kMiB, end - at));
      DSF_OK(io::read_at(*in, at, buffer));
      DSF_OK(io::write_at(to, at, buffer));
      at += buffer.size();
    }
    return {};
  };
  for (const Range& r : ranges) {
    DSF_OK(copy_to(r.begin));
    at = r.end;
  }
  return copy_to(size);
}

class Repair {
 public:
  Repair(const Plan& plan, const RepairOptions& options, const std::shared_ptr<hub::Shared>& shared,
         const Evidence& evidence)
      : plan_(plan), options_(options), shared_(shared), evidence_(evidence) {}

  // Fetched bytes of this file.
  Result<uint64_t> file(const FileReport& f) {
    DSF_TRY(const Place place, place_of(f.path));
    hub::FileSource source(place.repo, place.commit, place.entry);
    const Expected& want = evidence_.files.at(f.path);
    const uint64_t size = source.entry().size;
    const fs::path target = plan_.dir / f.path, part = plan_.dir / ".cache" / "verify" / "repair" /
                                                       (codec::sha256(f.path).hex().substr(0, 24) + ".part");
    DSF_TRY(const std::vector<Range> ranges, ranges_of(target, want, size, options_.request_bytes));
    DSF_OK(io::make_dirs(part.parent_path()));
    DSF_OK(io::make_dirs(target.parent_path()));
    const auto done = put_together(target, part, ranges, size, want, source);
    if (!done) {
      std::error_code ec;
      fs::remove(part, ec);
      return fail(done.error());
    }
    uint64_t fetched = 0;
    for (const Range& r : ranges) fetched += r.end - r.begin;
    return fetched;
  }

 private:
  struct Place {
    std::string repo, commit;
    hub::Entry entry;
  };
  // Where the file is on the Hub.
  Result<Place> place_of(const std::string& path) {
    for (const Origin& origin : evidence_.origins) {
      if (!path.starts_with(origin.subfolder)) continue;
      hub::Hub hub(shared_);
      DSF_TRY(const hub::Revision revision, hub.resolve_revision(origin.repo, origin.revision));
      DSF_TRY(const std::vector<hub::Entry> listing, hub.list(origin.repo, revision.commit));
      const std::string name = path.substr(origin.subfolder.size());
      const auto entry =
          std::find_if(listing.begin(), listing.end(), [&](const hub::Entry& e) { return e.path == name; });
      if (entry != listing.end()) return Place{origin.repo, revision.commit, *entry};
    }
    return fail(Code::kMissing, path, "is in no repository that the " + evidence_.kind + " names",
                "pass the pin that it comes from", "entry");
  }

  Result<void> put_together(const fs::path& target, const fs::path& part, const std::vector<Range>& ranges,
                            uint64_t size, const Expected& want, hub::FileSource& source) {
    DSF_TRY(io::Fd fd, io::open_write(part));
    DSF_OK(io::preallocate(fd, size));
    DSF_OK(copy_rest(target, ranges, size, fd));
    DSF_OK(fetch_ranges(shared_, source, ranges, options_.connections, fd));
    DSF_OK(io::sync(fd));
    DSF_OK(fd.close());
    DSF_TRY(const codec::Digest digest, codec::sha256_file(part));
    if (!want.sha256.empty() && digest.hex() != want.sha256)
      return fail(Code::kContent, target.string(),
                  "is still not what is expected after fetching it again (got " + digest.hex().substr(0, 12) + "..)",
                  "check the pin against the repository with --level hub", "digest");
    DSF_OK(io::rename_file(part, target));
    return io::sync_dir(target.parent_path());
  }

  const Plan& plan_;
  const RepairOptions& options_;
  const std::shared_ptr<hub::Shared>& shared_;
  const Evidence& evidence_;
};

// Structure alone cannot be fetched again: only what the evidence names and a digest or the size calls wrong.
bool repairable(const FileReport& f, const Evidence& evidence) {
  return evidence.files.contains(f.path) &&
         (f.status == "mismatch" || f.status == "wrong_size" || f.status == "missing" || f.status == "unstable");
}

}  // namespace

Result<int> repair(const Plan& plan, const RepairOptions& options, const std::shared_ptr<hub::Shared>& shared,
                   std::ostream& out, std::ostream& err) {
  DSF_TRY(const Evidence evidence, load_evidence(plan));
  if (evidence.origins.empty())
    return fail(Code::kUsage, plan.dir.string(), "nothing here says where the files come from", "pass --pin", "usage");
  DSF_TRY(const Report before, examine(plan));
  Repair work(plan, options, shared, evidence);
  uint64_t fetched = 0;
  size_t repaired = 0;
  for (const FileReport& f : before.files) {
    if (!repairable(f, evidence)) continue;
    DSF_TRY(const uint64_t bytes, work.file(f));
    fetched += bytes;
    ++repaired;
    cli::log(cli::Level::kInfo, "repaired", {{"file", f.path}, {"was", f.status}, {"fetched", format_bytes(bytes)}});
  }
  std::error_code ec;
  fs::remove(plan.dir / ".cache" / "verify" / "repair", ec);  // when empty
  if (!plan.json && !plan.quiet)
    out << (repaired == 0 ? std::string("nothing to repair")
                          : "repaired " + std::to_string(repaired) + " files, fetched " + format_bytes(fetched))
        << "\n";
  // A second look decides, with every digest computed again.
  return run(plan, out, err);
}

}  // namespace dsf::verify
