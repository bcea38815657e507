#include "tools/bench/opener.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace dsf::bench {

Opener::Opener(std::string url, http::ConnectionOptions options) : url_(std::move(url)), options_(std::move(options)), event_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Opener::~Opener() {
  threads_.clear();
  close(event_fd_);
}

void Opener::open(size_t tag) {
  ++pending_;
  threads_.emplace_back([this, tag] {
    Opened opened{tag, http::Connection::open(url_, options_)};
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(opened));
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event_fd_, &one, sizeof one);
  });
}

std::vector<Opener::Opened> Opener::take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(event_fd_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  pending_ -= done_.size();
  return std::exchange(done_, {});
}

}  // namespace dsf::bench
