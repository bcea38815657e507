#include "tools/fetch/get.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "dsf/base/time.h"
#include "tools/fetch/existing.h"
#include "tools/fetch/get_report.h"
#include "tools/fetch/owner.h"

namespace dsf::fetch {
namespace {

// Network file systems get one file at a time and few connections, in ascending order.
constexpr int kNetworkConnections = 8;

Result<io::FileLock> lock_folder(const Target& target, int64_t wait_us, const hub::Shared& shared) {
  const int64_t deadline = monotonic_ns() + wait_us * 1000;
  while (true) {
    auto lock = io::FileLock::acquire(target.state() / "LOCK");
    if (lock) return lock;
    if (lock.error().code != Code::kBusy || monotonic_ns() >= deadline || shared.stopped()) {
      Error error = lock.error();
      if (const std::string who = owner_of(target.state()); !who.empty()) error.what += " (" + who + ")";
      return fail(std::move(error));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// What a run that writes goes through, from the lock to the exit code.
class Run {
 public:
  Run(const Planned& p, const GetOptions& o, const std::shared_ptr<hub::Shared>& shared, Events& events)
      : p_(p), o_(o), shared_(shared), events_(events), target_(p.dir), stamps_(load_stamps(p, o.rehash)) {}
  Result<int> go();

 private:
  Result<bool> nothing_to_write();
  Result<int> bring();
  Result<int> settle(const EngineOutcome& outcome);

  const Planned& p_;
  const GetOptions& o_;
  const std::shared_ptr<hub::Shared>& shared_;
  Events& events_;
  Target target_;
  Stamps stamps_;
  Found found_;
  const std::string started_ = now_rfc3339();
};

Result<int> Run::go() {
  DSF_TRY(found_, look(p_.plan, target_, stamps_.files, !o_.dry_run, *shared_));
  if (o_.dry_run) {
    print_plan(p_, found_, events_);
    if (o_.space_check) DSF_OK(check_space(target_, found_, o_.reserve_bytes));
    return 0;
  }
  DSF_TRY(const bool done, nothing_to_write());
  if (done) {
    say_done(p_, found_, 0, events_, o_.quiet);
    return 0;
  }
  if (o_.space_check) DSF_OK(check_space(target_, found_, o_.reserve_bytes));
  DSF_OK(target_.prepare());
  DSF_TRY(const io::FileLock lock, lock_folder(target_, o_.wait_us, *shared_));
  // Another process may have finished while this one waited: only its result counts now.
  if (o_.wait_us > 0) {
    stamps_ = load_stamps(p_, o_.rehash);
    DSF_TRY(found_, look(p_.plan, target_, stamps_.files, true, *shared_));
  }
  return bring();
}

// Everything is there and recorded, or the folder cannot be written and everything is there all the same.
Result<bool> Run::nothing_to_write() {
  const bool recorded = stamps_.revision == p_.plan.commit &&
                        std::all_of(p_.plan.wanted.begin(), p_.plan.wanted.end(),
                                    [&](const Wanted& w) { return stamps_.files.contains(w.entry.path); });
  if (found_.missing.empty() && (recorded || !target_.writable())) return true;
  if (found_.missing.empty()) return false;
  const std::string first = manifest::printable(found_.missing.front()->entry.path);
  if (o_.offline) {
    return fail(Code::kOffline, first, "is missing or differs, and the run is offline", "run without --offline",
                "offline");
  }
  if (!target_.writable()) {
    return fail(Code::kLocal, first, "is missing, and " + p_.dir.string() + " cannot be written",
                "choose another --local-dir, or check permissions and mount", "read_only");
  }
  return false;
}

Result<int> Run::bring() {
  DSF_TRY(Owner owner, Owner::claim(target_.state()));
  if (!owner.exclusive()) {
    cli::log(cli::Level::kWarn, "another process works in this folder although its lock is free, keeping apart",
             {{"owner", owner_of(target_.state())}});
    target_.use_parts(owner.parts());
    DSF_OK(io::make_dirs(target_.parts()));
  }
  std::vector<std::string> paths;
  for (const Wanted& w : p_.plan.wanted) paths.push_back(w.entry.path);
  DSF_OK(check_names(paths, target_.case_insensitive(), o_.portable));
  DSF_OK(settle_conflicts(p_.plan, target_, found_, o_.overwrite));
  events_.emit("plan", {{"repo", p_.plan.repo},
                        {"revision", p_.plan.commit},
                        {"files", p_.plan.wanted.size()},
                        {"bytes", p_.plan.total_bytes()},
                        {"missing_files", found_.missing.size()},
                        {"missing_bytes", found_.missing_bytes}});
  EngineOptions engine = o_.engine;
  const bool network = target_.on_network();
  if (network) {
    engine.open_files = 1;
    engine.connections = std::min(engine.connections, kNetworkConnections);
  }
  engine.verify_stored = o_.verify_after == GetOptions::VerifyAfter::kAlways ||
                         (o_.verify_after == GetOptions::VerifyAfter::kAuto && network);
  EngineOutcome outcome;
  {
    cli::Progress progress("fetch " + p_.plan.repo, found_.missing_bytes, !o_.quiet);
    Observer observer = observe(found_, events_, progress);
    observer.on_tick = [&, tick = observer.on_tick](uint64_t done, uint64_t network_bytes) {
      owner.touch();
      tick(done, network_bytes);
    };
    outcome = run_engine(found_.missing, p_.plan.repo, p_.plan.commit, target_, shared_, engine, observer);
  }
  std::error_code ignored;
  if (!owner.exclusive()) std::filesystem::remove(target_.parts(), ignored);  // only when nothing is left to resume
  return settle(outcome);
}

Result<int> Run::settle(const EngineOutcome& outcome) {
  for (size_t i = 0; i < p_.plan.wanted.size(); ++i) {
    const Wanted& w = p_.plan.wanted[i];
    if (found_.checked[i].action == Action::kAdopt && found_.checked[i].hashed)
      DSF_OK(target_.write_metadata(w.entry.path, p_.plan.commit, w.etag()));
  }
  if (p_.plan.complete && !p_.listing.empty()) DSF_OK(target_.write_tree(p_.plan.commit, p_.listing));
  DSF_OK(write_record(p_, target_, found_, outcome.files, stamps_, started_, shared_->settings.http.verify_tls));
  DSF_TRY(const int code, report_failures(outcome.files, p_.plan));
  if (shared_->stopped())
    return fail(Code::kLocal, p_.plan.repo, "stopped", "run the command again to go on", "stopped");
  say_done(p_, found_, outcome.network_bytes, events_, o_.quiet);
  return code;
}

}  // namespace

Result<int> run_get(const GetOptions& options, const std::shared_ptr<hub::Shared>& shared, Events& events) {
  DSF_TRY(const std::vector<Planned> plans, make_plans(options, shared));
  for (const Planned& p : plans) DSF_OK(Run(p, options, shared, events).go());
  return 0;
}

}  // namespace dsf::fetch
