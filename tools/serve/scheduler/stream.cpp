#include "tools/serve/scheduler/stream.h"

#include <chrono>
#include <iterator>

namespace dsf::serve {

Batch Stream::wait(int64_t timeout_us) {
  Batch out;
  bool was_full = false;
  {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::microseconds(timeout_us), [&] { return !batch_.empty(); });
    was_full = batch_.tokens.size() + batch_.prompt.size() >= capacity_;
    std::swap(out, batch_);
  }
  if (was_full) wake_();
  return out;
}

void Stream::cancel() {
  cancelled_ = true;
  wake_();
}

bool Stream::has_room() const {
  const std::lock_guard lock(mutex_);
  return batch_.tokens.size() + batch_.prompt.size() < capacity_;
}

void Stream::admit() {
  const std::lock_guard lock(mutex_);
  batch_.admitted = true;
  arrived_.notify_one();
}

void Stream::push_prompt(std::vector<Choice> choices) {
  const std::lock_guard lock(mutex_);
  batch_.prompt.insert(batch_.prompt.end(), std::make_move_iterator(choices.begin()),
                       std::make_move_iterator(choices.end()));
  arrived_.notify_one();
}

void Stream::push(Choice choice) {
  const std::lock_guard lock(mutex_);
  batch_.tokens.push_back(std::move(choice));
  arrived_.notify_one();
}

void Stream::finish(End end, std::optional<Choice> last) {
  const std::lock_guard lock(mutex_);
  if (last) batch_.tokens.push_back(*std::move(last));
  batch_.end = std::move(end);
  arrived_.notify_one();
}

}  // namespace dsf::serve
