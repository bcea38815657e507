#include "fate.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "dsf/base/time.h"

namespace dsf::comm {
namespace {

// Lines, since they are few and a human may have to read them: "B" beat, "S" stop, "F reason" fail.
constexpr int kBeatMs = 100;
constexpr int64_t kKeptFromRunningNs = 500'000'000;
constexpr size_t kLongestLine = 4096;

Error lost_error(int rank, const std::string& what) { return Error{Code::kRemote, "rank " + std::to_string(rank), what, "look at its log", "peer_lost"}; }

}  // namespace

Fate::Fate(std::vector<Peer> peers, int64_t silence_us, std::function<void(const Error&)> lost)
    : silence_us_(silence_us), lost_(std::move(lost)) {
  const int64_t now = monotonic_ns();
  for (Peer& p : peers) watched_.push_back({std::move(p), now, false, {}});
  thread_ = std::jthread([this](const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "dsf-fate");
    run(stop);
  });
}

Fate::~Fate() {
  thread_.request_stop();
  thread_.join();
  send_line("S\n");
}

void Fate::fail_all(const std::string& reason) {
  std::string line = "F " + reason.substr(0, kLongestLine / 2);
  std::replace(line.begin(), line.end(), '\n', ' ');
  send_line(line + "\n");
}

void Fate::send_line(const std::string& line) {
  const std::lock_guard lock(sending_);
  // A full buffer means that the peer reads nothing: then its silence, or ours, tells.
  for (const Watched& w : watched_) (void)::send(w.peer.socket.fd(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::optional<Error> Fate::read(Watched& w) {
  std::array<char, 512> buffer{};
  while (true) {
    const ssize_t n = ::recv(w.peer.socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) break;
    if (n <= 0) {
      if (w.stopped) return std::nullopt;
      return lost_error(w.peer.rank, "has hung up: its process ended or its machine is gone");
    }
    w.heard_ns = monotonic_ns();
    w.text.append(buffer.data(), static_cast<size_t>(n));
    for (size_t end = w.text.find('\n'); end != std::string::npos; end = w.text.find('\n')) {
      const std::string line = w.text.substr(0, end);
      w.text.erase(0, end + 1);
      if (line == "S") w.stopped = true;
      if (line.starts_with("F ")) return lost_error(w.peer.rank, "has failed: " + line.substr(2));
    }
    if (w.text.size() > kLongestLine) return lost_error(w.peer.rank, "sends nonsense");
  }
  if (!w.stopped && monotonic_ns() - w.heard_ns > silence_us_ * 1000)
    return lost_error(w.peer.rank, "has been silent for " + std::to_string(silence_us_ / 1000) + " ms");
  return std::nullopt;
}

void Fate::run(const std::stop_token& stop) {
  int64_t last_ns = monotonic_ns(), sent_ns = 0;
  while (!stop.stop_requested()) {
    std::vector<pollfd> fds;
    for (const Watched& w : watched_)
      if (!w.stopped) fds.push_back({w.peer.socket.fd(), POLLIN, 0});
    (void)::poll(fds.data(), fds.size(), kBeatMs / 2);
    const int64_t now = monotonic_ns(), kept = now - last_ns;
    last_ns = now;
    if (now - sent_ns >= kBeatMs * int64_t{1'000'000}) {
      send_line("B\n");
      sent_ns = now;
    }
    for (Watched& w : watched_) {
      if (kept > kKeptFromRunningNs) w.heard_ns = std::max(w.heard_ns, now);
      if (const auto error = read(w)) {
        fail_all(error->subject + " " + error->what);
        return lost_(*error);
      }
    }
  }
}

}  // namespace dsf::comm
