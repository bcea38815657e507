#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/io/page_cache.h"
#include "tools/fetch/bundle.h"
#include "tools/fetch/bundle_read.h"
#include "tools/fetch/get_report.h"

namespace dsf::fetch {
namespace {

// The bundle's list as a plan. Git blob ids come from the pin inside, so that the public client recognises the files.
Result<Planned> plan_of(const BundleReader& reader, const BundleExtractOptions& o) {
  const Bundle& b = reader.bundle();
  DSF_TRY(const manifest::Pin pin, manifest::parse_pin(b.manifest, "manifest.json"));
  Planned p;
  p.dir = o.local_dir;
  p.plan.endpoint = pin.source.endpoint;
  p.plan.repo = b.repo;
  p.plan.commit = b.revision;
  p.plan.pin_name = b.name;
  p.plan.pin_sha256 = codec::sha256(b.manifest).hex();
  p.plan.complete = pin.complete && b.left_out.empty();
  for (const BundleFile& f : b.files) {
    const manifest::PinFile* pinned = pin.find(f.path);
    if (pinned == nullptr || pinned->sha256 != f.sha256 || pinned->size != f.size) {
      return fail(Code::kContent, manifest::printable(f.path), "is not what the manifest inside the bundle says",
                  "do not use this bundle", "bundle");
    }
    if (!o.filter.takes(f.path)) {
      p.plan.complete = false;
      continue;
    }
    hub::Entry e;
    e.path = f.path;
    e.size = f.size;
    e.lfs = pinned->git_sha1.empty();
    e.sha256 = f.sha256;
    e.git_sha1 = pinned->git_sha1;
    p.plan.wanted.push_back({std::move(e)});
  }
  if (p.plan.wanted.empty())
    return fail(Code::kUsage, o.bundle.string(), "the filters match no file", "see BUNDLE.json");
  std::sort(p.plan.wanted.begin(), p.plan.wanted.end(),
            [](const Wanted& a, const Wanted& b2) { return a.entry.path < b2.entry.path; });
  return p;
}

// One file: its frames into the part, both digests, then its name.
Result<FileResult> extract(const BundleReader& reader, const Member& m, const Wanted& w, const Target& target,
                           const std::string& commit, const std::function<bool()>& stop,
                           const std::function<void(uint64_t)>& tick) {
  const int64_t started = monotonic_ns();
  const std::string id = part_id(w.entry.path, w.etag());
  DSF_TRY(io::Fd part, target.open_part(id, w.entry.size));
  codec::Sha256 hash;
  const size_t index = static_cast<size_t>(&m - reader.members().data());
  for (const Frame& f : reader.frames()) {
    if (f.member != index) continue;
    if (stop()) return fail(Code::kLocal, w.entry.path, "stopped", "run the command again to go on", "stopped");
    DSF_TRY(const std::string raw, reader.read(f));
    const auto [offset, content] = content_of(m, f, raw);
    DSF_OK(io::write_at(part, offset, as_bytes(content)));
    hash.update(as_bytes(content));
    io::start_writeback(part, offset, content.size());
    tick(content.size());
  }
  FileResult r;
  r.wanted = &w;
  r.origin = "bundle";
  r.sha256 = hash.finish().hex();
  if (!w.entry.git_sha1.empty()) {
    DSF_TRY(r.git_sha1, codec::git_blob_sha1_file(target.parts() / (id + ".part")));
  }
  DSF_OK(compare(w, r.sha256, r.git_sha1, w.entry.path));
  DSF_OK(io::sync(part));
  if (::fchmod(part.get(), default_mode()) != 0) return fail(io::errno_error(part.path(), "cannot set the mode"));
  io::drop_page_cache(part, 0, 0);
  DSF_OK(part.close());
  DSF_OK(target.commit(id, w.entry.path, commit, w.etag()));
  r.seconds = static_cast<double>(monotonic_ns() - started) * 1e-9;
  r.ok = true;
  return r;
}

// In the order of the stream; a file that fails does not stop the others.
Result<std::vector<FileResult>> extract_all(const BundleReader& reader, const Found& found, const Target& target,
                                            const std::string& commit, const std::function<bool()>& stop, bool quiet) {
  std::vector<FileResult> results;
  cli::Progress progress("extract " + reader.bundle().name, found.missing_bytes, !quiet);
  uint64_t done = 0;
  for (const Member& m : reader.members()) {
    const auto w = std::find_if(found.missing.begin(), found.missing.end(),
                                [&](const Wanted* x) { return m.file && x->entry.path == m.path; });
    if (w == found.missing.end()) continue;
    auto r = extract(reader, m, **w, target, commit, stop, [&](uint64_t n) { progress.update(done += n); });
    if (r) {
      results.push_back(std::move(*r));
      continue;
    }
    FileResult failed;
    failed.wanted = *w;
    failed.error = r.error();
    failed.skipped = r.error().cls == "stopped";
    results.push_back(std::move(failed));
    if (r.error().code == Code::kLocal) break;  // a full disk stays full, a stop is a stop
  }
  return results;
}

}  // namespace

Result<int> run_bundle_extract(const BundleExtractOptions& o, const std::function<bool()>& stop, Events& events) {
  const std::string started = now_rfc3339();
  DSF_TRY(const BundleReader reader, BundleReader::open(o.bundle));
  if (!o.key.empty()) DSF_OK(reader.check_signature(o.key));
  DSF_TRY(const Planned p, plan_of(reader, o));
  const Target target(p.dir);
  hub::Shared nobody({}, {});  // look() asks it for the stop switch alone
  nobody.stop = stop;
  const Stamps stamps = load_stamps(p, false);
  DSF_TRY(const Found found, look(p.plan, target, stamps.files, !o.dry_run, nobody));
  if (o.dry_run) {
    print_plan(p, found, events);
    return 0;
  }
  if (found.missing.empty() && stamps.revision == p.plan.commit) {
    say_done(p, found, 0, events, o.quiet);
    return 0;
  }
  if (o.space_check) DSF_OK(check_space(target, found, o.reserve_bytes));
  DSF_OK(target.prepare());
  DSF_TRY(const io::FileLock lock, io::FileLock::acquire(target.state() / "LOCK"));
  std::vector<std::string> paths;
  for (const Wanted& w : p.plan.wanted) paths.push_back(w.entry.path);
  DSF_OK(check_names(paths, target.case_insensitive(), false));
  DSF_OK(settle_conflicts(p.plan, target, found, o.overwrite));
  DSF_TRY(const auto results, extract_all(reader, found, target, p.plan.commit, stop, o.quiet));
  DSF_OK(write_record(p, target, found, results, stamps, started, true));
  DSF_TRY(const int code, report_failures(results, p.plan));
  if (stop()) return fail(Code::kLocal, p.plan.repo, "stopped", "run the command again to go on", "stopped");
  say_done(p, found, 0, events, o.quiet);
  return code;
}

}  // namespace dsf::fetch
