#include "tools/fetch/get.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "tools/fetch/plan.h"

namespace dsf::fetch {
namespace {

using json::Value;

struct Planned {
  Plan plan;
  std::filesystem::path dir;
  std::vector<hub::Entry> listing;  // when it was asked for, whole
};

// What a run finds out about each wanted file before the download.
struct Found {
  std::vector<Checked> checked;  // parallel to plan.wanted
  std::vector<const Wanted*> missing;
  uint64_t missing_bytes = 0;
};

Result<void> select(Plan& plan, const GetOptions& o) {
  for (const std::string& path : o.paths) {
    if (std::none_of(plan.wanted.begin(), plan.wanted.end(), [&](const Wanted& w) { return w.entry.path == path; })) {
      return fail(Code::kMissing, manifest::printable(path), "is not in " + plan.repo + " at this revision",
                  "see dsf-fetch ls " + plan.repo, "entry");
    }
  }
  const size_t before = plan.wanted.size();
  std::erase_if(plan.wanted, [&](const Wanted& w) {
    const bool named = o.paths.empty() || std::find(o.paths.begin(), o.paths.end(), w.entry.path) != o.paths.end();
    return !named || !o.filter.takes(w.entry.path);
  });
  if (plan.wanted.size() < before) plan.complete = false;
  if (plan.wanted.empty())
    return fail(Code::kUsage, plan.repo, "the filters match no file", "see dsf-fetch ls " + plan.repo);
  return {};
}

hub::Entry entry_of(const manifest::PinFile& f) {
  hub::Entry e;
  e.path = f.path;
  e.size = f.size.value_or(0);
  e.lfs = f.lfs || f.git_sha1.empty();
  e.sha256 = f.sha256;
  e.git_sha1 = f.git_sha1;
  e.pointer_git_sha1 = f.pointer_git_sha1;
  e.xet_hash = f.xet_hash;
  return e;
}

Result<void> list_repo(Planned& p, const std::string& revision, hub::Hub& hub) {
  DSF_TRY(const hub::Revision rev, hub.resolve_revision(p.plan.repo, revision));
  p.plan.commit = rev.commit;
  DSF_TRY(p.listing, hub.list(p.plan.repo, rev.commit));
  return {};
}

// An open pin names files whose size or digest is not known: the listing fills in, and whatever the pin does know still
// holds.
Result<void> fill_open(Planned& p, const manifest::Pin& pin, hub::Hub& hub) {
  DSF_OK(list_repo(p, pin.source.revision.empty() ? pin.source.requested_revision : pin.source.revision, hub));
  for (const hub::Entry& e : p.listing) {
    const manifest::PinFile* pinned = pin.find(e.path);
    if (pinned == nullptr && !pin.select.takes(e.path)) continue;
    hub::Entry entry = e;
    if (pinned != nullptr && !pinned->sha256.empty()) {
      if (e.lfs && e.sha256 != pinned->sha256) {
        return fail(Code::kContent, manifest::printable(e.path), "the Hub's digest differs from the pin",
                    "check the pin against the repository", "changed");
      }
      entry.sha256 = pinned->sha256;
    }
    p.plan.wanted.push_back({std::move(entry)});
  }
  for (const manifest::PinFile& f : pin.files) {
    if (std::none_of(p.listing.begin(), p.listing.end(), [&](const hub::Entry& e) { return e.path == f.path; })) {
      return fail(Code::kMissing, manifest::printable(f.path), "is pinned but not in the repository",
                  "run dsf-fetch pin --update", "entry");
    }
  }
  return {};
}

Result<Planned> plan_pin(const manifest::PlacedPin& placed, const GetOptions& o,
                         const std::shared_ptr<hub::Shared>& shared, hub::Hub& hub) {
  const manifest::Pin& pin = placed.pin;
  Planned p;
  p.plan.endpoint = shared->settings.endpoint;
  p.plan.repo = pin.source.repo;
  p.plan.commit = pin.source.revision;
  p.plan.pin_name = pin.name;
  p.plan.pin_path = placed.file.string();
  p.plan.pin_sha256 = codec::sha256(placed.bytes).hex();
  p.dir = o.local_dir / placed.subfolder;
  if (pin.open()) {
    if (!o.allow_open || o.offline) {
      std::string open;
      for (const std::string& item : pin.open_items(3)) open += (open.empty() ? "" : ", ") + manifest::printable(item);
      return fail(Code::kUsage, placed.file.string(), "the pin is open (" + open + ")",
                  "fill it with dsf-fetch pin --update, or give --allow-open to take what the Hub has now", "open_pin");
    }
    DSF_OK(fill_open(p, pin, hub));
  } else {
    p.plan.complete = pin.complete;
    for (const manifest::PinFile& f : pin.files) p.plan.wanted.push_back({entry_of(f)});
  }
  DSF_OK(select(p.plan, o));
  return p;
}

Result<Planned> plan_repo(const GetOptions& o, const std::shared_ptr<hub::Shared>& shared, hub::Hub& hub) {
  DSF_TRY(const hub::RepoSpec spec, hub::parse_repo(o.what, shared->settings.endpoint));
  if (!spec.revision.empty() && !o.revision.empty() && spec.revision != o.revision) {
    return fail(Code::kUsage, o.what, "names another revision than --revision", "give one of them");
  }
  Planned p;
  p.dir = o.local_dir;
  p.plan.endpoint = shared->settings.endpoint;
  p.plan.repo = spec.repo;
  const std::string revision = !spec.revision.empty() ? spec.revision : !o.revision.empty() ? o.revision : "main";
  if (o.offline) {
    const auto record = manifest::load_fetch_record(p.dir);
    if (!record || record->repo != spec.repo || (hub::is_commit(revision) && record->revision != revision)) {
      return fail(Code::kOffline, o.what, "offline, and " + p.dir.string() + " holds no record of it",
                  "run once without --offline", "offline");
    }
    p.plan.commit = record->revision;
    p.plan.complete = record->complete;
    for (const manifest::FetchedFile& f : record->files) {
      p.plan.wanted.push_back({{f.path, f.size, f.git_sha1.empty(), f.sha256, f.git_sha1, "", ""}});
    }
  } else {
    DSF_OK(list_repo(p, revision, hub));
    for (const hub::Entry& e : p.listing) p.plan.wanted.push_back({e});
    p.plan.complete = true;
  }
  DSF_OK(select(p.plan, o));
  return p;
}

Result<std::vector<Planned>> make_plans(const GetOptions& o, const std::shared_ptr<hub::Shared>& shared) {
  hub::Hub hub(shared);
  std::vector<Planned> plans;
  std::error_code ignored;
  if (o.what.ends_with(".json") && std::filesystem::exists(o.what, ignored)) {
    if (!o.revision.empty())
      return fail(Code::kUsage, "--revision", "cannot be given with a pin", "the pin names the revision");
    DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(o.what));
    for (const manifest::PlacedPin& placed : deployment.pins) {
      DSF_TRY(Planned p, plan_pin(placed, o, shared, hub));
      plans.push_back(std::move(p));
    }
  } else {
    DSF_TRY(Planned p, plan_repo(o, shared, hub));
    plans.push_back(std::move(p));
  }
  return plans;
}

// Looks at all wanted files, hashing several at once.
Result<Found> look(const Plan& plan, const Target& target, const std::map<std::string, manifest::FetchedFile>& stamps,
                   bool hash, const hub::Shared& shared) {
  Found found;
  found.checked.resize(plan.wanted.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> error;
  const auto work = [&] {
    for (size_t i = next++; i < plan.wanted.size() && !shared.stopped(); i = next++) {
      const auto stamp = stamps.find(plan.wanted[i].entry.path);
      auto checked = check_existing(target, plan.wanted[i], stamp == stamps.end() ? nullptr : &stamp->second, hash);
      const std::lock_guard lock(mutex);
      if (checked) {
        found.checked[i] = std::move(*checked);
      } else if (!error) {
        error = checked.error();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (error) return fail(*error);
  if (shared.stopped()) return fail(Code::kLocal, plan.repo, "stopped", "", "stopped");
  for (size_t i = 0; i < plan.wanted.size(); ++i) {
    if (found.checked[i].action == Action::kAdopt) continue;
    found.missing.push_back(&plan.wanted[i]);
    found.missing_bytes += plan.wanted[i].entry.size;
  }
  return found;
}

Result<void> settle_conflicts(const Plan& plan, const Target& target, const Found& found, bool overwrite) {
  std::vector<std::string> conflicts;
  for (size_t i = 0; i < plan.wanted.size(); ++i) {
    if (found.checked[i].action == Action::kConflict) conflicts.push_back(plan.wanted[i].entry.path);
  }
  if (conflicts.empty()) return {};
  if (!overwrite) {
    std::string names;
    for (size_t i = 0; i < std::min<size_t>(3, conflicts.size()); ++i)
      names += (i > 0 ? ", " : "") + manifest::printable(conflicts[i]);
    if (conflicts.size() > 3) names += " and " + std::to_string(conflicts.size() - 3) + " more";
    return fail(Code::kLocal, target.dir().string(), "holds other content under wanted names: " + names,
                "choose another folder, or give --overwrite to put them aside under .cache/fetch/replaced", "conflict");
  }
  for (const std::string& path : conflicts) DSF_OK(target.set_aside(path));
  return {};
}

Result<void> check_space(const Target& target, const Found& found, const GetOptions& o) {
  std::error_code ignored;
  std::filesystem::path existing = std::filesystem::absolute(target.dir(), ignored);  // a relative "model" has no parent to look at
  while (!std::filesystem::exists(existing, ignored) && existing.has_parent_path() &&
         existing != existing.parent_path())
    existing = existing.parent_path();
  DSF_TRY(const uint64_t free, io::free_bytes(existing));
  uint64_t reserved = 0;  // parts of an earlier run already own their blocks
  for (const Wanted* w : found.missing) {
    if (const auto size = io::file_size(target.parts() / (part_id(w->entry.path, w->etag()) + ".part")))
      reserved += std::min(*size, w->entry.size);
  }
  const uint64_t need = found.missing_bytes - reserved + o.reserve_bytes;
  if (need <= free) return {};
  return fail(Code::kLocal, target.dir().string(),
              "needs " + format_bytes(need) + " (with the reserve), has " + format_bytes(free),
              "free some space, or give another --local-dir", "no_space");
}

void print_plan(const Planned& p, const Found& found, Events& events) {
  static constexpr const char* kNames[] = {"download", "adopt", "conflict"};
  for (size_t i = 0; i < p.plan.wanted.size(); ++i) {
    const hub::Entry& e = p.plan.wanted[i].entry;
    const char* action = kNames[static_cast<int>(found.checked[i].action)];
    if (events.enabled()) {
      events.emit("planned",
                  {{"path", e.path}, {"size", e.size}, {"digest", e.lfs ? "sha256" : "git_sha1"}, {"action", action}});
    } else {
      std::printf("%-8s %15llu  %s\n", action, static_cast<unsigned long long>(e.size),
                  manifest::printable(e.path).c_str());
    }
  }
  if (!events.enabled()) {
    std::printf("%zu of %zu files, %s of %s to download from %s at %s\n", found.missing.size(), p.plan.wanted.size(),
                format_bytes(found.missing_bytes).c_str(), format_bytes(p.plan.total_bytes()).c_str(),
                p.plan.repo.c_str(), p.plan.commit.c_str());
  }
}

manifest::FetchedFile fetched(const Target& target, const Wanted& w) {
  manifest::FetchedFile f;
  f.path = w.entry.path;
  f.size = w.entry.size;
  f.git_sha1 = w.entry.git_sha1;
  f.verified_at = now_rfc3339();
  if (const auto st = target.stat_file(w.entry.path); st && *st) {
    f.mtime_ns = int64_t{(*st)->st_mtim.tv_sec} * 1'000'000'000 + (*st)->st_mtim.tv_nsec;
    f.inode = (*st)->st_ino;
    f.dev = (*st)->st_dev;
  }
  return f;
}

// The record names everything that is there and verified: what this run brought, what it found, and what earlier runs
// of the same revision brought beside it.
Result<void> write_record(const Planned& p, const Target& target, const Found& found,
                          const std::vector<FileResult>& results,
                          const std::map<std::string, manifest::FetchedFile>& stamps, const std::string& same_revision,
                          const std::string& started, bool tls_verified) {
  std::map<std::string, manifest::FetchedFile> files;
  if (same_revision == p.plan.commit) {
    for (const auto& [path, stamp] : stamps) files[path] = stamp;
  }
  for (size_t i = 0; i < p.plan.wanted.size(); ++i) {
    const Wanted& w = p.plan.wanted[i];
    files.erase(w.entry.path);
    if (found.checked[i].action != Action::kAdopt) continue;
    const auto stamp = stamps.find(w.entry.path);
    if (!found.checked[i].hashed && stamp != stamps.end()) {
      files[w.entry.path] = stamp->second;
      continue;
    }
    manifest::FetchedFile f = fetched(target, w);
    f.sha256 = found.checked[i].sha256;
    f.verified = "stored";
    f.origin = "adopted";
    files[w.entry.path] = std::move(f);
  }
  for (const FileResult& r : results) {
    if (!r.ok) continue;
    manifest::FetchedFile f = fetched(target, *r.wanted);
    f.sha256 = r.sha256;
    f.verified = "received";
    f.origin = "network";
    f.host = r.host;
    f.seconds = r.seconds;
    files[r.wanted->entry.path] = std::move(f);
  }
  manifest::FetchRecord record;
  record.created_by = cli::tool_id("dsf-fetch");
  if (!p.plan.pin_path.empty()) record.inputs = {{p.plan.pin_path, p.plan.pin_sha256}};
  record.pin_name = p.plan.pin_name;
  record.pin_sha256 = p.plan.pin_sha256;
  record.repo = p.plan.repo;
  record.revision = p.plan.commit;
  record.endpoint = p.plan.endpoint;
  record.started = started;
  record.finished = now_rfc3339();
  record.tls_verified = tls_verified;
  record.complete = p.plan.complete && std::all_of(p.plan.wanted.begin(), p.plan.wanted.end(),
                                                   [&](const Wanted& w) { return files.contains(w.entry.path); });
  for (auto& [path, f] : files) record.files.push_back(std::move(f));
  return io::write_file_atomic(target.dir() / manifest::kFetchRecordPath, manifest::write(manifest::to_record(record)));
}

Observer observe(const Found& found, Events& events, cli::Progress& progress) {
  Observer observer;
  observer.on_start = [&](const Wanted& w, uint64_t resumed) {
    events.emit("file_start", {{"path", w.entry.path}, {"size", w.entry.size}, {"resumed", resumed}});
  };
  observer.on_done = [&](const FileResult& r) {
    if (r.ok) {
      events.emit("file_done", {{"path", r.wanted->entry.path},
                                {"size", r.wanted->entry.size},
                                {"sha256", r.sha256},
                                {"seconds", r.seconds},
                                {"source", "network"},
                                {"resumed", r.resumed_bytes}});
    } else if (!r.skipped) {
      events.emit("file_failed", {{"path", r.wanted->entry.path},
                                  {"class", r.error.cls},
                                  {"exit", static_cast<int>(r.error.code)},
                                  {"error", r.error.line()}});
    }
  };
  observer.on_tick = [&, total = found.missing_bytes, last = int64_t{0}](uint64_t done, uint64_t network) mutable {
    progress.update(done);
    if (const int64_t now = monotonic_ns(); now - last >= 1'000'000'000) {
      events.emit("progress", {{"done", done}, {"total", total}, {"network", network}});
      last = now;
    }
  };
  return observer;
}

// Every error on a line of its own; the process ends with the worst one.
Result<int> report_failures(const std::vector<FileResult>& results, const Plan& plan) {
  std::vector<const FileResult*> failed;
  for (const FileResult& r : results) {
    if (!r.ok && !r.skipped) failed.push_back(&r);
  }
  if (failed.empty()) return 0;
  Error error = failed.front()->error;
  for (const FileResult* r : failed) {
    if (worst(error.code, r->error.code) != error.code) error = r->error;
  }
  if (failed.size() > 1) {
    for (const FileResult* r : failed) cli::log(cli::Level::kError, r->error.line());
    error.subject = plan.repo;
    error.what =
        std::to_string(failed.size()) + " of " + std::to_string(plan.wanted.size()) + " files failed, see above";
  }
  return fail(std::move(error));
}

Result<io::FileLock> lock_folder(const Target& target, int64_t wait_us, const hub::Shared& shared) {
  const int64_t deadline = monotonic_ns() + wait_us * 1000;
  while (true) {
    auto lock = io::FileLock::acquire(target.state() / "LOCK");
    if (lock || lock.error().code != Code::kBusy || monotonic_ns() >= deadline || shared.stopped()) return lock;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

Result<void> say_done(const Planned& p, const Found& found, Events& events, bool quiet) {
  events.emit("summary", {{"repo", p.plan.repo},
                          {"revision", p.plan.commit},
                          {"files", p.plan.wanted.size()},
                          {"bytes", p.plan.total_bytes()},
                          {"downloaded_files", found.missing.size()},
                          {"downloaded_bytes", found.missing_bytes},
                          {"result", "ok"}});
  if (!events.enabled() && !quiet) std::printf("%s\n", p.dir.string().c_str());
  if (found.missing.empty() && !quiet)
    cli::log(cli::Level::kInfo, "nothing to do", {{"files", std::to_string(p.plan.wanted.size())}});
  return {};
}

struct Stamps {
  std::map<std::string, manifest::FetchedFile> files;
  std::string revision;
};

Stamps load_stamps(const Planned& p, bool rehash) {
  Stamps s;
  const auto record = manifest::load_fetch_record(p.dir);
  if (rehash || !record || record->repo != p.plan.repo) return s;
  s.revision = record->revision;
  for (const manifest::FetchedFile& f : record->files) s.files[f.path] = f;
  return s;
}

Result<int> get_one(const Planned& p, const GetOptions& o, const std::shared_ptr<hub::Shared>& shared, Events& events) {
  const std::string started = now_rfc3339();
  const Target target(p.dir);
  Stamps stamps = load_stamps(p, o.rehash);
  DSF_TRY(Found found, look(p.plan, target, stamps.files, !o.dry_run, *shared));
  if (o.dry_run) {
    print_plan(p, found, events);
    if (o.space_check) DSF_OK(check_space(target, found, o));
    return 0;
  }
  const bool recorded = stamps.revision == p.plan.commit &&
                        std::all_of(p.plan.wanted.begin(), p.plan.wanted.end(),
                                    [&](const Wanted& w) { return stamps.files.contains(w.entry.path); });
  if (found.missing.empty() && recorded) {
    DSF_OK(say_done(p, found, events, o.quiet));
    return 0;
  }
  if (o.offline && !found.missing.empty()) {
    return fail(Code::kOffline, manifest::printable(found.missing.front()->entry.path),
                "is missing or differs, and the run is offline", "run without --offline", "offline");
  }
  if (o.space_check) DSF_OK(check_space(target, found, o));
  DSF_OK(target.prepare());
  DSF_TRY(const io::FileLock lock, lock_folder(target, o.wait_us, *shared));
  // Another process may have finished while this one waited: only its result counts now.
  if (o.wait_us > 0) {
    stamps = load_stamps(p, o.rehash);
    DSF_TRY(found, look(p.plan, target, stamps.files, true, *shared));
  }
  DSF_OK(settle_conflicts(p.plan, target, found, o.overwrite));
  events.emit("plan", {{"repo", p.plan.repo},
                       {"revision", p.plan.commit},
                       {"files", p.plan.wanted.size()},
                       {"bytes", p.plan.total_bytes()},
                       {"missing_files", found.missing.size()},
                       {"missing_bytes", found.missing_bytes}});
  std::vector<FileResult> results;
  {
    cli::Progress progress("fetch " + p.plan.repo, found.missing_bytes, !o.quiet);
    results = run_engine(found.missing, p.plan.repo, p.plan.commit, target, shared, o.engine,
                         observe(found, events, progress));
  }
  for (size_t i = 0; i < p.plan.wanted.size(); ++i) {
    if (found.checked[i].action == Action::kAdopt && found.checked[i].hashed) {
      DSF_OK(target.write_metadata(p.plan.wanted[i].entry.path, p.plan.commit, p.plan.wanted[i].etag()));
    }
  }
  if (p.plan.complete && !p.listing.empty()) DSF_OK(target.write_tree(p.plan.commit, p.listing));
  DSF_OK(write_record(p, target, found, results, stamps.files, stamps.revision, started,
                      shared->settings.http.verify_tls));
  DSF_TRY(const int code, report_failures(results, p.plan));
  if (shared->stopped()) return fail(Code::kLocal, p.plan.repo, "stopped", "run the command again to go on", "stopped");
  DSF_OK(say_done(p, found, events, o.quiet));
  return code;
}

}  // namespace

Result<int> run_get(const GetOptions& options, const std::shared_ptr<hub::Shared>& shared, Events& events) {
  DSF_TRY(const std::vector<Planned> plans, make_plans(options, shared));
  for (const Planned& p : plans) DSF_OK(get_one(p, options, shared, events));
  return 0;
}

}  // namespace dsf::fetch
