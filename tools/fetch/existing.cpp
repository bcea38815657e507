#include "tools/fetch/existing.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"

namespace dsf::fetch {

Stamps load_stamps(const Planned& p, bool rehash) {
  Stamps s;
  const auto record = manifest::load_fetch_record(p.dir);
  if (rehash || !record || record->repo != p.plan.repo) return s;
  s.revision = record->revision;
  for (const manifest::FetchedFile& f : record->files) s.files[f.path] = f;
  return s;
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

Result<void> check_names(const std::vector<std::string>& paths, bool case_insensitive, bool portable) {
  for (const manifest::PathConflict& c : manifest::path_conflicts(paths)) {
    if (c.fatal) continue;  // refused with the listing
    const std::string names = manifest::printable(c.a) + " and " + manifest::printable(c.b);
    if (case_insensitive) {
      return fail(Code::kLocal, names, "are one name on this file system", "choose a case-sensitive --local-dir",
                  "case_collision");
    }
    cli::log(cli::Level::kWarn, "names differ only in case", {{"files", names}});
  }
  for (const std::string& path : paths) {
    const std::string why = manifest::portability_problem(path);
    if (why.empty()) continue;
    if (portable) {
      return fail(Code::kContent, manifest::printable(path), "is not portable: " + why, "leave --portable away",
                  "not_portable");
    }
    cli::log(cli::Level::kDebug, "name is not portable", {{"file", manifest::printable(path)}, {"why", why}});
  }
  return {};
}

Result<void> check_space(const Target& target, const Found& found, uint64_t reserve_bytes) {
  DSF_TRY(const uint64_t free, io::free_bytes(target.existing_ancestor()));
  uint64_t reserved = 0;  // parts of an earlier run already own their blocks
  for (const Wanted* w : found.missing) {
    if (const auto size = io::file_size(target.parts() / (part_id(w->entry.path, w->etag()) + ".part")))
      reserved += std::min(*size, w->entry.size);
  }
  const uint64_t need = found.missing_bytes - reserved + reserve_bytes;
  if (need <= free) return {};
  return fail(Code::kLocal, target.dir().string(),
              "needs " + format_bytes(need) + " (with the reserve), has " + format_bytes(free),
              "free some space, or give another --local-dir", "no_space");
}

}  // namespace dsf::fetch
