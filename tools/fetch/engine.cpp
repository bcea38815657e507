#include "tools/fetch/engine.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "tools/fetch/file_task.h"

namespace dsf::fetch {
namespace {

using Phase = FileTask::Phase;
using Piece = FileTask::Piece;

constexpr uint64_t kMaxRunPieces = 8;
constexpr uint64_t kMaxRunBytes = 256 * kMiB;

// Consecutive pieces that one connection takes with one request.
struct Run {
  FileTask* file = nullptr;
  uint64_t next = 0, end = 0;  // pieces; end shrinks when an idle connection takes over the tail (guarded)
};

class Engine {
 public:
  Engine(const Target& target, const std::shared_ptr<hub::Shared>& shared, const EngineOptions& options,
         const Observer& observer)
      : target_(target), shared_(shared), options_(options), observer_(observer) {}

  std::vector<FileResult> run(const std::vector<const Wanted*>& wanted, const std::string& repo,
                              const std::string& commit);

 private:
  void transfer_loop();
  void hash_loop();
  bool open_next(std::unique_lock<std::mutex>& lock);
  bool take_run(Run& run);
  bool split_longest(Run& run);
  void execute(Run& run, hub::Hub& hub);
  Result<void> finish_piece(Run& run, const codec::Digest& digest);
  void complete(FileTask& file, std::unique_lock<std::mutex>& lock);
  void fail_file(FileTask& file, Error error);  // mutex held
  void report(FileTask& file);                  // mutex held
  bool ended() const { return finished_ == files_.size() || shared_->stopped() || give_up_; }

  const Target& target_;
  const std::shared_ptr<hub::Shared>& shared_;
  const EngineOptions& options_;
  const Observer& observer_;
  std::string commit_;
  std::list<FileTask> files_;  // stable addresses

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t finished_ = 0;
  int open_ = 0;
  bool give_up_ = false;
  std::vector<Run*> running_;
  std::atomic<uint64_t> done_bytes_ = 0, network_bytes_ = 0;
};

// The next queued file gets its part file. The slow part, proving old pieces, runs unlocked. True when something was
// tried.
bool Engine::open_next(std::unique_lock<std::mutex>& lock) {
  if (open_ >= options_.open_files) return false;
  const auto next =
      std::find_if(files_.begin(), files_.end(), [](const FileTask& f) { return f.phase == Phase::kQueued; });
  if (next == files_.end()) return false;
  FileTask& file = *next;
  file.phase = Phase::kPreparing;
  ++open_;
  lock.unlock();
  const Result<void> ready = file.prepare(target_, [&] { return shared_->stopped(); });
  lock.lock();
  if (!ready) {
    fail_file(file, ready.error());
  } else {
    file.phase = Phase::kOpen;
    done_bytes_ += file.resumed_bytes;
    if (observer_.on_start) observer_.on_start(file.wanted, file.resumed_bytes);
    if (file.n_pieces == 0) complete(file, lock);
  }
  changed_.notify_all();
  return true;
}

bool Engine::take_run(Run& run) {
  for (FileTask& f : files_) {
    if (f.phase != Phase::kOpen || (f.sequential && f.runs > 0)) continue;
    const uint64_t window =
        std::max<uint64_t>(1, options_.window_bytes / static_cast<uint64_t>(std::max(1, open_)) / f.piece_bytes);
    const uint64_t limit = std::min(f.n_pieces, f.frontier + window);
    for (uint64_t i = f.frontier; i < limit; ++i) {
      if (f.pieces[i] != Piece::kFree) continue;
      // Short runs while every connection still needs work, long ones only for large files.
      const uint64_t share = std::max<uint64_t>(1, f.n_pieces / static_cast<uint64_t>(2 * options_.connections));
      const uint64_t longest = std::max<uint64_t>(1, std::min({kMaxRunPieces, kMaxRunBytes / f.piece_bytes, share}));
      run = {&f, i, i};
      while (run.end < limit && run.end - i < longest && f.pieces[run.end] == Piece::kFree)
        f.pieces[run.end++] = Piece::kTaken;
      ++f.runs;
      return true;
    }
  }
  return false;
}

// End game: the tail of the longest run goes to an idle connection. Its owner notices at the next piece border.
bool Engine::split_longest(Run& run) {
  Run* longest = nullptr;
  for (Run* r : running_) {
    if (r->file->sequential || r->end - r->next < 2) continue;
    if (longest == nullptr || r->end - r->next > longest->end - longest->next) longest = r;
  }
  if (longest == nullptr) return false;
  const uint64_t middle = longest->next + (longest->end - longest->next + 1) / 2;
  run = {longest->file, middle, longest->end};
  longest->end = middle;
  ++run.file->runs;
  return true;
}

void Engine::transfer_loop() {
  hub::Hub hub(shared_);
  std::unique_lock lock(mutex_);
  while (!ended()) {
    Run run;
    if (!take_run(run)) {
      if (open_next(lock)) continue;
      if (!split_longest(run)) {
        changed_.wait_for(lock, std::chrono::milliseconds(50));
        continue;
      }
    }
    running_.push_back(&run);
    lock.unlock();
    execute(run, hub);
    lock.lock();
    std::erase(running_, &run);
    for (uint64_t i = run.next; i < run.end; ++i) {
      if (run.file->pieces[i] == Piece::kTaken) run.file->pieces[i] = Piece::kFree;
    }
    --run.file->runs;
    changed_.notify_all();
  }
}

// Brings the pieces of a run, over as many attempts as the policy allows, continuing at the exact byte.
void Engine::execute(Run& run, hub::Hub& hub) {
  FileTask& file = *run.file;
  codec::Sha256 piece_hash;
  uint64_t at = file.piece_begin(run.next);
  Result<void> local;
  uint64_t progress = 0, requested = 0;
  const auto run_end = [&] {
    const std::lock_guard lock(mutex_);
    return file.phase == Phase::kOpen ? run.end : run.next;
  };
  const auto sink = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const uint64_t border = file.piece_end(run.next);
      const auto part = bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), border - at)));
      local = io::write_at(file.part, at, part);
      if (!local) return false;
      if (file.journal) piece_hash.update(part);
      at += part.size();
      progress += part.size();
      done_bytes_ += part.size();
      network_bytes_ += part.size();
      bytes = bytes.subspan(part.size());
      if (at == border) {
        local = finish_piece(run, file.journal ? piece_hash.finish() : codec::Digest{});
        if (!local) return false;
        if (run.next < requested && run.next >= run_end()) return false;  // the tail now belongs to another connection
      }
    }
    return true;
  };
  const hub::RetryPolicy& policy = shared_->retry;
  for (int attempt = 0, waits = 0; run.next < run_end() && !shared_->stopped();) {
    requested = run_end();
    if (run.next >= requested) break;
    progress = 0;
    const auto failed = hub.read_range(file.source, at, file.piece_end(requested - 1), sink);
    if (!local) {
      const std::lock_guard lock(mutex_);
      return fail_file(file, local.error());
    }
    if (!failed || failed->error.cls == "stopped") continue;
    if (progress >= kMiB || (progress > 0 && file.size < kMiB)) attempt = 0;
    if (!failed->retry || (failed->counts ? ++attempt >= policy.attempts : ++waits > policy.rate_waits)) {
      const std::lock_guard lock(mutex_);
      return fail_file(file, failed->error);
    }
    const int64_t wait =
        failed->wait_us >= 0 ? std::min(failed->wait_us, policy.rate_cap_us) : shared_->backoff_us(attempt);
    if (!failed->counts) shared_->close_gate_until(monotonic_ns() + wait * 1000);
    if (shared_->on_retry) shared_->on_retry({failed->error.subject, failed->error.cls, 0, wait});
    if (!shared_->wait(wait)) return;
  }
}

Result<void> Engine::finish_piece(Run& run, const codec::Digest& digest) {
  FileTask& file = *run.file;
  bool sync = false;
  {
    const std::lock_guard lock(mutex_);
    if (file.journal) DSF_OK(file.journal->add(run.next, digest));
    file.unsynced += file.piece_end(run.next) - file.piece_begin(run.next);
    sync = file.unsynced >= options_.sync_bytes;
    if (sync) file.unsynced = 0;
    file.pieces[run.next++] = Piece::kDone;
  }
  changed_.notify_all();
  // A failed sync is final: the kernel may have dropped the pages, and a second call would say that all is well.
  return sync ? io::sync(file.part) : Result<void>();
}

void Engine::hash_loop() {
  std::unique_lock lock(mutex_);
  while (!ended()) {
    const auto ready = std::find_if(files_.begin(), files_.end(), [](const FileTask& f) {
      return f.phase == Phase::kOpen && !f.hashing && f.frontier < f.n_pieces && f.pieces[f.frontier] == Piece::kDone;
    });
    if (ready == files_.end()) {
      changed_.wait_for(lock, std::chrono::milliseconds(50));
      continue;
    }
    FileTask& file = *ready;
    file.hashing = true;
    const uint64_t piece = file.frontier;
    lock.unlock();
    const Result<void> hashed = file.hash_piece(piece);
    lock.lock();
    file.hashing = false;
    if (file.phase != Phase::kOpen) continue;
    if (!hashed) {
      fail_file(file, hashed.error());
    } else if (++file.frontier == file.n_pieces) {
      complete(file, lock);
    }
    changed_.notify_all();
  }
}

// All pieces are in and hashed.
void Engine::complete(FileTask& file, std::unique_lock<std::mutex>& lock) {
  file.phase = Phase::kFinishing;
  // A thief that found nothing left to do may still hold the file; its descriptor must be gone before the rename.
  changed_.wait(lock, [&] { return file.runs == 0; });
  lock.unlock();
  const Result<void> done = file.finish(target_, commit_, file.result);
  lock.lock();
  if (done) {
    file.phase = Phase::kDone;
    return report(file);
  }
  if (done.error().cls != "digest_mismatch") return fail_file(file, done.error());
  if (!file.sequential && !shared_->stopped()) {
    // Once more, over a single connection in order: another pattern than the one that failed.
    if (shared_->on_retry) shared_->on_retry({file.wanted.entry.path, "digest_mismatch", 0, 0});
    done_bytes_ -= file.size;
    if (const auto again = file.start_over(); !again) return fail_file(file, again.error());
    file.phase = Phase::kOpen;
    return;
  }
  file.remove_part(target_, options_.keep_bad);
  fail_file(file, done.error());
}

void Engine::fail_file(FileTask& file, Error error) {
  if (file.phase == Phase::kFailed || file.phase == Phase::kDone) return;
  file.result.error = std::move(error);
  file.result.skipped = file.result.error.cls == "stopped";
  file.phase = Phase::kFailed;
  // A full or broken disk, or a refused credential, will not be better for the next file.
  const Code code = file.result.error.code;
  give_up_ = give_up_ || options_.fail_fast || code == Code::kRefused || (code == Code::kLocal && !file.result.skipped);
  report(file);
}

void Engine::report(FileTask& file) {
  ++finished_;
  --open_;
  if (observer_.on_done) observer_.on_done(file.result);
  changed_.notify_all();
}

std::vector<FileResult> Engine::run(const std::vector<const Wanted*>& wanted, const std::string& repo,
                                    const std::string& commit) {
  commit_ = commit;
  for (const Wanted* w : wanted) files_.emplace_back(*w, repo, commit, options_);
  // Small files first, so that what people look at is there early; then the largest, so that it is not the last.
  files_.sort([&](const FileTask& a, const FileTask& b) {
    const bool small_a = a.size <= options_.whole_file_bytes, small_b = b.size <= options_.whole_file_bytes;
    return small_a != small_b ? small_a : small_a ? a.size < b.size : a.size > b.size;
  });
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int hashers =
      options_.hash_threads > 0 ? options_.hash_threads : std::clamp(cores / 2, 1, std::max(1, options_.open_files));
  std::vector<std::thread> threads;
  for (int i = 0; i < options_.connections; ++i) threads.emplace_back([this] { transfer_loop(); });
  for (int i = 0; i < hashers; ++i) threads.emplace_back([this] { hash_loop(); });
  {
    std::unique_lock lock(mutex_);
    while (!ended()) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      if (!observer_.on_tick) continue;
      lock.unlock();
      observer_.on_tick(done_bytes_, network_bytes_);
      lock.lock();
    }
  }
  changed_.notify_all();
  for (std::thread& t : threads) t.join();
  std::vector<FileResult> results;
  for (FileTask& f : files_) {
    if (f.phase != Phase::kDone && f.phase != Phase::kFailed) f.result.skipped = true;
    results.push_back(f.result);
  }
  return results;
}

}  // namespace

std::vector<FileResult> run_engine(const std::vector<const Wanted*>& wanted, const std::string& repo,
                                   const std::string& commit, const Target& target,
                                   const std::shared_ptr<hub::Shared>& shared, const EngineOptions& options,
                                   const Observer& observer) {
  return Engine(target, shared, options, observer).run(wanted, repo, commit);
}

}  // namespace dsf::fetch
