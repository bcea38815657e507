#include "tools/fetch/get_report.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/version.h"

namespace dsf::fetch {
namespace {

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

}  // namespace

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

Result<void> write_record(const Planned& p, const Target& target, const Found& found,
                          const std::vector<FileResult>& results, const Stamps& stamps, const std::string& started,
                          bool tls_verified) {
  std::map<std::string, manifest::FetchedFile> files;
  if (stamps.revision == p.plan.commit) files = stamps.files;
  for (size_t i = 0; i < p.plan.wanted.size(); ++i) {
    const Wanted& w = p.plan.wanted[i];
    files.erase(w.entry.path);
    if (found.checked[i].action != Action::kAdopt) continue;
    const auto stamp = stamps.files.find(w.entry.path);
    if (!found.checked[i].hashed && stamp != stamps.files.end()) {
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
    f.verified = r.stored ? "stored" : "received";
    f.origin = r.origin;
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
  observer.on_stall = [&](int64_t silent_us) {
    events.emit("stall", {{"seconds", static_cast<double>(silent_us) * 1e-6}});
    cli::log(cli::Level::kWarn, "no byte on any connection, asking the Hub again",
             {{"seconds", std::to_string(silent_us / 1'000'000)}});
  };
  observer.on_fewer_connections = [&](int connections) {
    events.emit("fewer_connections", {{"connections", connections}});
    cli::log(cli::Level::kWarn, "many connections fail, using fewer", {{"connections", std::to_string(connections)}});
  };
  return observer;
}

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

void say_done(const Planned& p, const Found& found, uint64_t network_bytes, Events& events, bool quiet) {
  events.emit("summary", {{"repo", p.plan.repo},
                          {"revision", p.plan.commit},
                          {"files", p.plan.wanted.size()},
                          {"bytes", p.plan.total_bytes()},
                          {"downloaded_files", found.missing.size()},
                          {"downloaded_bytes", found.missing_bytes},
                          {"network_bytes", network_bytes},
                          {"result", "ok"}});
  if (!events.enabled() && !quiet) std::printf("%s\n", p.dir.string().c_str());
  if (found.missing.empty() && !quiet)
    cli::log(cli::Level::kInfo, "nothing to do", {{"files", std::to_string(p.plan.wanted.size())}});
}

}  // namespace dsf::fetch
