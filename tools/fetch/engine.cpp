#include "tools/fetch/engine.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/io/page_cache.h"
#include "tools/fetch/budget.h"
#include "tools/fetch/file_task.h"

namespace dsf::fetch {
namespace {

using Phase = FileTask::Phase;
using Piece = FileTask::Piece;

constexpr uint64_t kMaxRunPieces = 8;
constexpr uint64_t kMaxRunBytes = 256 * kMiB;
constexpr size_t kWriteBytes = 512 * kKiB;  // libcurl hands over 16 KiB at a time: far too little for a write each

// Consecutive pieces that one connection takes with one request.
struct Run {
  FileTask* file = nullptr;
  uint64_t next = 0, end = 0;  // pieces; end shrinks when an idle connection takes over the tail (guarded)
};

class Engine {
 public:
  Engine(const Target& target, const std::shared_ptr<hub::Shared>& shared, const EngineOptions& options,
         const Observer& observer)
      : target_(target), shared_(shared), options_(options), observer_(observer), budget_(options.connections) {}

  EngineOutcome run(const std::vector<const Wanted*>& wanted, const std::string& repo, const std::string& commit);

 private:
  void transfer_loop(int index);
  void hash_loop();
  bool open_next(std::unique_lock<std::mutex>& lock);
  bool take_run(Run& run);
  bool split_longest(Run& run);
  class Receiver;
  void execute(Run& run, hub::Hub& hub, std::vector<std::byte>& buffer);
  uint64_t end_of(const Run& run);
  Result<void> finish_piece(Run& run, uint32_t crc);
  void complete(FileTask& file, std::unique_lock<std::mutex>& lock);
  void fail_file(FileTask& file, Error error);  // mutex held
  void report(FileTask& file);                  // mutex held
  void note_failure(const hub::Hub::Outcome& outcome);
  void watch();  // on the calling thread, until all is done
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
  Budget budget_;
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

void Engine::transfer_loop(int index) {
  hub::Hub hub(shared_);
  std::vector<std::byte> buffer(kWriteBytes);
  std::unique_lock lock(mutex_);
  while (!ended()) {
    if (index >= budget_.allowed(monotonic_ns())) {
      changed_.wait_for(lock, std::chrono::milliseconds(200));
      continue;
    }
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
    execute(run, hub, buffer);
    lock.lock();
    std::erase(running_, &run);
    for (uint64_t i = run.next; i < run.end; ++i) {
      if (run.file->pieces[i] == Piece::kTaken) run.file->pieces[i] = Piece::kFree;
    }
    --run.file->runs;
    changed_.notify_all();
  }
}

// What arrives for a run: gathered into blocks, written at its place, piece after piece.
class Engine::Receiver {
 public:
  Receiver(Engine& engine, Run& run, std::vector<std::byte>& buffer)
      : engine_(engine), run_(run), file_(*run.file), buffer_(buffer), at_(file_.piece_begin(run.next)) {}
  uint64_t at() const { return at_; }  // of the next byte to ask for
  const Result<void>& local() const { return local_; }
  void request_up_to(uint64_t piece) { requested_ = piece; }

  // False: no more is wanted, or the disk failed.
  bool take(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const uint64_t border = file_.piece_end(run_.next);
      const auto n = static_cast<size_t>(std::min<uint64_t>({bytes.size(), border - at_, buffer_.size() - held_}));
      std::copy_n(bytes.begin(), n, buffer_.begin() + static_cast<ptrdiff_t>(held_));
      held_ += n;
      at_ += n;
      bytes = bytes.subspan(n);
      if (held_ == buffer_.size() || at_ == border) flush();
      if (local_ && at_ == border) {
        local_ = engine_.finish_piece(run_, std::exchange(crc_, 0));
        // The tail may belong to another connection now.
        if (local_ && run_.next < requested_ && run_.next >= engine_.end_of(run_)) return false;
      }
      if (!local_) return false;
    }
    return true;
  }

  void flush() {
    if (held_ == 0 || !local_) return;
    const auto block = std::span<const std::byte>(buffer_).first(std::exchange(held_, 0));
    local_ = io::write_at(file_.part, at_ - block.size(), block);
    if (file_.journal) crc_ = codec::crc32c(block, crc_);
    engine_.done_bytes_ += block.size();
    engine_.network_bytes_ += block.size();
  }

 private:
  Engine& engine_;
  Run& run_;
  FileTask& file_;
  std::vector<std::byte>& buffer_;
  uint64_t at_, requested_ = 0;
  size_t held_ = 0;
  uint32_t crc_ = 0;
  Result<void> local_;
};

// The end of a run may be taken over by another connection meanwhile; a file that failed wants nothing more.
uint64_t Engine::end_of(const Run& run) {
  const std::lock_guard lock(mutex_);
  return run.file->phase == Phase::kOpen ? run.end : run.next;
}

// Brings the pieces of a run, over as many attempts as the policy allows, continuing at the exact byte.
void Engine::execute(Run& run, hub::Hub& hub, std::vector<std::byte>& buffer) {
  FileTask& file = *run.file;
  Receiver receiver(*this, run, buffer);
  hub::Attempts attempts(*shared_);
  uint64_t longest = kMaxRunPieces;  // of one request: halved when the storage refuses, some hosts limit ranges
  while (!shared_->stopped()) {
    const uint64_t requested = std::min(end_of(run), run.next + longest), begin = receiver.at();
    if (run.next >= requested) break;
    receiver.request_up_to(requested);
    const auto failed = hub.read_range(file.source, begin, file.piece_end(requested - 1),
                                       [&](std::span<const std::byte> bytes) { return receiver.take(bytes); });
    receiver.flush();
    if (!receiver.local()) {
      const std::lock_guard lock(mutex_);
      return fail_file(file, receiver.local().error());
    }
    if (!failed || failed->error.cls == "stopped") continue;
    const uint64_t progress = receiver.at() - begin;
    // Bytes that trickle in between two failures are no progress.
    if (progress >= std::min<uint64_t>(kMiB, file.size / 4)) attempts.progress();
    note_failure(*failed);
    if (failed->error.cls == "expired") longest = std::max<uint64_t>(1, (requested - run.next) / 2);
    if (attempts.again(*failed, failed->error.subject)) continue;
    if (attempts.stopped()) return;
    const std::lock_guard lock(mutex_);
    return fail_file(file, failed->error);
  }
}

void Engine::note_failure(const hub::Hub::Outcome& outcome) {
  if (!outcome.retry || !outcome.counts || outcome.error.cls == "expired" || outcome.error.cls == "tag_changed") return;
  int now = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!budget_.failed(monotonic_ns())) return;
    now = budget_.allowed(monotonic_ns());
  }
  if (observer_.on_fewer_connections) observer_.on_fewer_connections(now);
}

Result<void> Engine::finish_piece(Run& run, uint32_t crc) {
  FileTask& file = *run.file;
  bool sync = false;
  if (file.journal) {
    const uint64_t begin = file.piece_begin(run.next);
    io::start_writeback(file.part, begin, file.piece_end(run.next) - begin);
  }
  {
    const std::lock_guard lock(mutex_);
    if (file.journal) DSF_OK(file.journal->add(run.next, piece_word(crc)));
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
    Result<void> hashed = file.hash_piece(piece);
    // One piece late, so that the hashing does not wait for the piece whose writing has just begun.
    if (hashed && file.journal && piece > 0)
      hashed = io::drop_written(file.part, file.piece_begin(piece - 1), file.piece_bytes);
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
  const Result<void> done = file.finish(target_, commit_, options_.verify_stored, file.result);
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

void Engine::watch() {
  uint64_t seen = 0;
  int64_t since_ns = monotonic_ns();
  std::unique_lock lock(mutex_);
  while (!ended()) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    lock.unlock();
    if (observer_.on_tick) observer_.on_tick(done_bytes_, network_bytes_);
    const bool silent = network_bytes_ == seen && !shared_->gate_closed();
    lock.lock();
    const int64_t now_ns = monotonic_ns();
    if (!silent || running_.empty()) {
      seen = network_bytes_;
      since_ns = now_ns;
    } else if (now_ns - since_ns >= options_.watchdog_us * 1000) {
      // Each request has a clock of its own; when all of them are silent, the places they ask may be the reason.
      for (FileTask& f : files_) f.source.forget_location();
      if (observer_.on_stall) observer_.on_stall((now_ns - since_ns) / 1000);
      since_ns = now_ns;
    }
  }
}

EngineOutcome Engine::run(const std::vector<const Wanted*>& wanted, const std::string& repo,
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
  for (int i = 0; i < options_.connections; ++i) threads.emplace_back([this, i] { transfer_loop(i); });
  for (int i = 0; i < hashers; ++i) threads.emplace_back([this] { hash_loop(); });
  watch();
  changed_.notify_all();
  for (std::thread& t : threads) t.join();
  EngineOutcome outcome;
  for (FileTask& f : files_) {
    if (f.phase != Phase::kDone && f.phase != Phase::kFailed) f.result.skipped = true;
    outcome.files.push_back(f.result);
  }
  outcome.network_bytes = network_bytes_;
  return outcome;
}

}  // namespace

EngineOutcome run_engine(const std::vector<const Wanted*>& wanted, const std::string& repo, const std::string& commit,
                         const Target& target, const std::shared_ptr<hub::Shared>& shared, const EngineOptions& options,
                         const Observer& observer) {
  return Engine(target, shared, options, observer).run(wanted, repo, commit);
}

}  // namespace dsf::fetch
