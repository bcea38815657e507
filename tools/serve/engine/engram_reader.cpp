#include "tools/serve/engine/engram_reader.h"

#include <algorithm>

namespace dsf::serve {
namespace {

// Enough that taking a task costs little beside it, few enough that the rows of one token keep several threads, and so
// the disk, busy.
constexpr size_t kRowsPerTask = 6;

}  // namespace

EngramReader::EngramReader(const engram::RowSource& source, int threads) : source_(source) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

EngramReader::~EngramReader() { finish(); }

void EngramReader::start(std::vector<std::vector<int64_t>> rows, std::vector<std::span<std::byte>> out) {
  {
    const std::lock_guard lock(mutex_);
    layers_.clear();
    tasks_.clear();
    next_ = 0;
    for (size_t l = 0; l < rows.size(); ++l) {
      const size_t n = rows[l].size();
      for (size_t at = 0; at < n; at += kRowsPerTask) tasks_.push_back({l, at, std::min(kRowsPerTask, n - at)});
      layers_.push_back({std::move(rows[l]), out[l], (n + kRowsPerTask - 1) / kRowsPerTask, {}});
    }
  }
  started_.notify_all();
}

Result<void> EngramReader::wait(size_t layer) {
  std::unique_lock lock(mutex_);
  while (layers_[layer].tasks_left > 0) {
    if (next_ < tasks_.size() && tasks_[next_].layer <= layer) {
      run_one(lock);
    } else {
      done_.wait(lock);
    }
  }
  return layers_[layer].result;
}

void EngramReader::finish() {
  std::unique_lock lock(mutex_);
  // What nobody has begun is not begun any more.
  for (; next_ < tasks_.size(); ++next_) --layers_[tasks_[next_].layer].tasks_left;
  done_.wait(lock, [&] {
    return std::all_of(layers_.begin(), layers_.end(), [](const Layer& l) { return l.tasks_left == 0; });
  });
}

void EngramReader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (started_.wait(lock, stop, [&] { return next_ < tasks_.size(); })) run_one(lock);
}

// Takes the next task and does it without the lock.
void EngramReader::run_one(std::unique_lock<std::mutex>& lock) {
  const Task task = tasks_[next_++];
  Layer& layer = layers_[task.layer];
  const auto bytes = static_cast<size_t>(source_.layout().row_bytes());
  lock.unlock();
  Result<void> read = source_.read(task.layer, std::span(layer.rows).subspan(task.first, task.count),
                                   layer.out.subspan(task.first * bytes, task.count * bytes));
  lock.lock();
  if (!read && layer.result) layer.result = std::move(read);
  if (--layer.tasks_left == 0) done_.notify_all();
}

}  // namespace dsf::serve
