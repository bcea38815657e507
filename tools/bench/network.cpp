#include "tools/bench/network.h"

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "dsf/base/numeric.h"
#include "dsf/base/scope.h"
#include "dsf/base/time.h"
#include "dsf/http/response_parser.h"
#include "tools/bench/first_token.h"
#include "tools/bench/opener.h"

namespace dsf::bench {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr int64_t kIdleBeforePingNs = 2'000'000'000;   // many servers drop idle connections after about 5 s
constexpr int64_t kAfterDoneNs = 2'000'000'000;        // [DONE] came, the end of the transfer did not
constexpr uint64_t kStopTag = UINT64_MAX, kOpenTag = UINT64_MAX - 1;
constexpr size_t kReplacement = SIZE_MAX;              // a connection opened for whoever is next, not for one stream

int64_t process_cpu_ns() {
  timespec ts{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
}

bool ends_with_done(const std::string& body) {
  std::string_view tail(body);
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == '\r')) tail.remove_suffix(1);
  return tail.ends_with("[DONE]");
}

}  // namespace

struct Network::Link {
  http::Connection connection;
  size_t index = 0;          // in links_, and in epoll
  int64_t last_used_ns = 0;
  int64_t requests = 0;
  bool dead = false;
  Stream* stream = nullptr;  // the request that uses it now
};

struct Network::Stream {
  const Outgoing* request = nullptr;
  Capture capture;
  http::ResponseParser parser;
  FirstTokenWatch first_token;
  Link* link = nullptr;
  size_t sent = 0;
  int64_t release_ns = 0, last_byte_ns = 0, done_ns = 0;
  bool finished = false;
};

// One call of run().
class Network::Loop {
 public:
  Loop(Network& net, const std::vector<Outgoing>& requests)
      : net_(net), streams_(requests.size()), buffer_(kReadBytes), opener_(net.url_, net.options_) {
    for (size_t i = 0; i < requests.size(); ++i) {
      streams_[i].request = &requests[i];
      scheduled_ = scheduled_ || requests[i].scheduled_ns.has_value();
      waiting_.push_back(&streams_[i]);
    }
    for (auto& link : net.links_) {
      if (!link->dead) free_.push_back(link.get());
    }
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < net.links_.size(); ++i) {
      net.links_[i]->index = i;
      if (!net.links_[i]->dead) watch(EPOLL_CTL_ADD, net.links_[i]->connection.fd(), EPOLLIN, i);
    }
    watch(EPOLL_CTL_ADD, opener_.fd(), EPOLLIN, kOpenTag);
    if (net.stop_fd_ >= 0) watch(EPOLL_CTL_ADD, net.stop_fd_, EPOLLIN, kStopTag);
  }
  ~Loop() { close(epoll_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::vector<Capture> run() {
    start_ns_ = monotonic_ns();
    const int64_t cpu = process_cpu_ns();
    while (live_ > 0 || !waiting_.empty()) {
      release_due();
      if (live_ == 0 && waiting_.empty()) break;
      wait_and_read();
      if (net_.stop_ && net_.stop_()) abort_all();
      check_deadlines();
    }
    net_.stats_ = {monotonic_ns() - start_ns_, process_cpu_ns() - cpu, lag_max_ns_, reads_};
    std::vector<Capture> out;
    for (auto& s : streams_) {
      s.capture.loop_lag_max_ns = lag_max_ns_;
      out.push_back(std::move(s.capture));
    }
    return out;
  }

 private:
  void watch(int operation, int fd, uint32_t events, uint64_t tag) {
    epoll_event e{};
    e.events = events;
    e.data.u64 = tag;
    epoll_ctl(epoll_, operation, fd, &e);
  }
  int64_t relative(int64_t ns) const { return ns - net_.epoch_ns_; }

  void release_due() {
    while (!waiting_.empty()) {
      Stream& s = *waiting_.front();
      const int64_t due = start_ns_ + s.request->scheduled_ns.value_or(0);
      if (s.request->scheduled_ns) s.capture.t.scheduled = relative(due);
      if (s.request->scheduled_ns && monotonic_ns() < due) return;
      if (net_.new_connections_) {
        waiting_.pop_front();
        release_unconnected(s);
        continue;
      }
      if (free_.empty()) {
        if (scheduled_ && live_ + static_cast<int>(opener_.pending()) > 0) return;  // late: the record shows it
        waiting_.pop_front();
        s.finished = true;
        s.capture.ending = Ending::kConnectError;
        s.capture.error = net_.open_errors_.empty() ? "no connection" : net_.open_errors_.front();
        continue;
      }
      waiting_.pop_front();
      release(s, *free_.front());
    }
  }

  void release(Stream& s, Link& link) {
    free_.pop_front();
    stamp_release(s);
    attach(s, link);
  }

  void release_unconnected(Stream& s) {
    stamp_release(s);
    opener_.open(static_cast<size_t>(&s - streams_.data()));
  }

  void stamp_release(Stream& s) {
    ++live_;
    net_.live_.streams.store(live_, std::memory_order_relaxed);
    s.release_ns = s.last_byte_ns = monotonic_ns();
    s.capture.t.release = relative(s.release_ns);
  }

  void attach(Stream& s, Link& link) {
    s.link = &link;
    link.stream = &s;
    HttpInfo& info = s.capture.http;
    info.remote = link.connection.remote();
    info.local_port = link.connection.local_port();
    info.conn_reused = link.requests > 0;
    info.new_connects = link.requests > 0 ? 0 : 1;
    info.bytes_up = static_cast<int64_t>(s.request->bytes.size());
    ++link.requests;
    send_more(s);
  }

  // Connections that were being opened: for the stream that waits for it, or for the next one.
  void take_opened() {
    for (auto& opened : opener_.take()) {
      Stream* s = opened.tag == kReplacement ? nullptr : &streams_[opened.tag];
      if (s != nullptr && s->finished) continue;  // interrupted meanwhile
      if (!opened.connection) {
        net_.open_errors_.push_back(opened.connection.error().what);
        if (s == nullptr) continue;
        s->capture.error = opened.connection.error().what;
        finish(*s, opened.connection.error().cls == "timeout" ? Ending::kTimeoutConnect : Ending::kConnectError, monotonic_ns(), false);
        continue;
      }
      Link& link = *net_.links_.emplace_back(std::make_unique<Link>());
      link.index = net_.links_.size() - 1;
      link.connection = std::move(*opened.connection);
      link.last_used_ns = monotonic_ns();
      watch(EPOLL_CTL_ADD, link.connection.fd(), EPOLLIN, link.index);
      if (s != nullptr) attach(*s, link);
      else free_.push_back(&link);
    }
  }

  void send_more(Stream& s) {
    const auto bytes = as_bytes(s.request->bytes);
    while (s.sent < bytes.size()) {
      const auto n = s.link->connection.send(bytes.subspan(s.sent));
      if (!n) return lost(s, n.error().what);
      if (*n == 0) {
        watch(EPOLL_CTL_MOD, s.link->connection.fd(), EPOLLIN | EPOLLOUT, s.link->index);
        return;
      }
      s.sent += *n;
    }
    s.capture.t.sent = relative(monotonic_ns());
    watch(EPOLL_CTL_MOD, s.link->connection.fd(), EPOLLIN, s.link->index);
  }

  void wait_and_read() {
    std::array<epoll_event, 64> events{};
    const int n = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait_ms());
    const int64_t woke_ns = monotonic_ns();
    for (int i = 0; i < n; ++i) {
      const auto& e = events[static_cast<size_t>(i)];
      if (e.data.u64 == kStopTag) continue;
      if (e.data.u64 == kOpenTag) {
        take_opened();
        continue;
      }
      Link& link = *net_.links_[e.data.u64];
      if (link.stream == nullptr) {
        drop(link);  // closed, or bytes that nobody asked for
        continue;
      }
      if ((e.events & EPOLLOUT) != 0) send_more(*link.stream);
      if (link.stream != nullptr && (e.events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read(*link.stream);
    }
    if (n > 0) lag_max_ns_ = std::max(lag_max_ns_, monotonic_ns() - woke_ns);
  }

  int wait_ms() const {
    int64_t ms = 100;  // deadlines and the stop flag are looked at this often
    if (!waiting_.empty()) {
      const int64_t due = start_ns_ + waiting_.front()->request->scheduled_ns.value_or(0);
      // The last millisecond is spun: epoll's clock is too coarse for a schedule.
      if (!free_.empty() || net_.new_connections_) ms = std::clamp<int64_t>((due - monotonic_ns()) / 1'000'000 - 1, 0, ms);
    }
    return static_cast<int>(ms);
  }

  void read(Stream& s) {
    while (true) {
      const auto got = s.link->connection.receive(std::as_writable_bytes(std::span(buffer_)));
      const int64_t now = monotonic_ns();
      ++reads_;
      if (!got) return lost(s, got.error().what);
      if (!*got) return;
      if (**got == 0) return closed(s, now);
      take(s, std::string_view(buffer_.data(), **got), now);
      // Plain sockets report leftovers at the next wait; decrypted bytes inside the TLS library do not.
      if (s.finished || (**got < buffer_.size() && !net_.url_.starts_with("https:"))) return;
    }
  }

  void take(Stream& s, std::string_view bytes, int64_t now) {
    Capture& c = s.capture;
    s.last_byte_ns = now;
    const size_t before = c.body.size();
    const bool head_before = s.parser.head_done();
    s.parser.feed(bytes, c.body);
    if (!head_before && s.parser.head_done()) head_done(s, now);
    if (!c.t.first_byte && !c.body.empty()) c.t.first_byte = relative(now);
    c.reads.push_back({relative(now), static_cast<int64_t>(bytes.size()), c.body.size()});
    c.http.bytes_down += static_cast<int64_t>(bytes.size());
    const std::string_view fresh = std::string_view(c.body).substr(before);
    s.first_token.feed(fresh);
    count_live(fresh, bytes.size());
    if (s.parser.broken()) {
      c.error = s.parser.why_broken();
      return finish(s, Ending::kBadHttp, now, false);
    }
    if (s.parser.complete()) return finish(s, Ending::kComplete, now, s.parser.keep_alive());
    if (s.done_ns == 0 && ends_with_done(c.body)) s.done_ns = now;
  }

  void count_live(std::string_view fresh, size_t raw) {
    int64_t events = 0;
    for (size_t at = fresh.find("\n\n"); at != std::string_view::npos; at = fresh.find("\n\n", at + 2)) ++events;
    net_.live_.events.fetch_add(events, std::memory_order_relaxed);
    net_.live_.bytes.fetch_add(static_cast<int64_t>(raw), std::memory_order_relaxed);
  }

  void head_done(Stream& s, int64_t now) {
    HttpInfo& info = s.capture.http;
    const auto text = [&](std::string_view name) { return clean_utf8(http::find_header(s.parser.headers(), name)); };
    s.capture.t.headers = relative(now);
    info.status = s.parser.status();
    info.version = s.parser.version();
    info.content_type = text("content-type");
    info.server = text("server");
    info.request_id = text("x-request-id");
  }

  void closed(Stream& s, int64_t now) {
    if (s.capture.reads.empty() && s.capture.http.conn_reused) {
      s.capture.error = "the reused connection died before any answer";
      return finish(s, Ending::kConnectError, now, false);
    }
    s.parser.feed_eof();
    s.capture.http.closed_by_server = true;
    if (!s.parser.complete()) s.capture.error = "the server closed inside the answer";
    finish(s, s.parser.complete() ? Ending::kComplete : Ending::kCut, now, false);
  }

  void lost(Stream& s, const std::string& why) {
    s.capture.error = why;
    const bool nothing = s.capture.reads.empty() && s.capture.http.conn_reused;
    finish(s, nothing ? Ending::kConnectError : Ending::kCut, monotonic_ns(), false);
  }

  void finish(Stream& s, Ending ending, int64_t now, bool keep) {
    s.finished = true;
    s.capture.ending = ending;
    s.capture.t.end = relative(now);
    if (s.link != nullptr) {
      s.link->stream = nullptr;
      s.link->last_used_ns = now;
      if (keep && !net_.new_connections_) free_.push_back(s.link);
      else drop(*s.link);
    }
    --live_;
    net_.live_.streams.store(live_, std::memory_order_relaxed);
    net_.live_.finished.fetch_add(1, std::memory_order_relaxed);
  }

  void drop(Link& link) {
    if (link.dead) return;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, link.connection.fd(), nullptr);
    link.dead = true;
    link.connection = http::Connection();
    std::erase(free_, &link);
    if (scheduled_ && !waiting_.empty() && !net_.new_connections_) opener_.open(kReplacement);
  }

  void check_deadlines() {
    const int64_t now = monotonic_ns();
    if (now - checked_ns_ < 20'000'000) return;
    checked_ns_ = now;
    const Timeouts& limit = net_.timeouts_;
    for (auto& s : streams_) {
      if (s.finished || s.link == nullptr) continue;
      if (s.done_ns != 0 && now - s.done_ns > kAfterDoneNs) {
        finish(s, Ending::kComplete, s.done_ns, false);
      } else if (now - s.release_ns > limit.total_us * 1000) {
        give_up(s, Ending::kTimeoutTotal, "not finished in time", now);
      } else if (!s.first_token.seen() && now - s.release_ns > limit.first_token_us * 1000) {
        give_up(s, Ending::kTimeoutFirstToken, "no first token in time", now);
      } else if (now - s.last_byte_ns > limit.idle_us * 1000) {
        give_up(s, Ending::kTimeoutIdle, "no byte for too long", now);
      }
    }
  }

  void give_up(Stream& s, Ending ending, std::string why, int64_t now) {
    s.capture.error = std::move(why);
    finish(s, ending, now, false);
  }

  void abort_all() {
    const int64_t now = monotonic_ns();
    for (auto& s : streams_) {
      if (s.finished) continue;
      if (s.release_ns != 0) {
        give_up(s, Ending::kAborted, "interrupted", now);
      } else {
        s.finished = true;
        s.capture.ending = Ending::kAborted;
        s.capture.error = "interrupted before it was released";
      }
    }
    waiting_.clear();
  }

  Network& net_;
  std::vector<Stream> streams_;
  std::deque<Stream*> waiting_;
  std::deque<Link*> free_;
  std::vector<char> buffer_;
  Opener opener_;
  int epoll_ = -1;
  int live_ = 0;
  bool scheduled_ = false;
  int64_t start_ns_ = 0, lag_max_ns_ = 0, reads_ = 0, checked_ns_ = 0;
};

Network::Network(std::string url, http::ConnectionOptions options, Timeouts timeouts, int64_t epoch_ns)
    : url_(std::move(url)), options_(std::move(options)), timeouts_(timeouts), epoch_ns_(epoch_ns) {
  options_.connect_timeout_us = timeouts.connect_us;
}
Network::~Network() = default;

void Network::set_stop(std::function<bool()> stop, int stop_fd) {
  stop_ = std::move(stop);
  stop_fd_ = stop_fd;
}

void Network::prepare(size_t n, const std::string& ping) {
  std::erase_if(links_, [](const auto& link) { return link->dead; });
  open_errors_.clear();
  if (new_connections_) return;
  const int64_t now = monotonic_ns();
  const bool stale = std::any_of(links_.begin(), links_.end(), [&](const auto& l) { return now - l->last_used_ns > kIdleBeforePingNs; });
  if (stale && !ping.empty()) {
    run(std::vector<Outgoing>(links_.size(), {ping, std::nullopt}));
    std::erase_if(links_, [](const auto& link) { return link->dead; });
  }
  while (links_.size() < n) {
    auto connection = http::Connection::open(url_, options_);
    if (!connection) {
      open_errors_.push_back(connection.error().what);
      return;
    }
    links_.push_back(std::make_unique<Link>());
    links_.back()->connection = std::move(*connection);
    links_.back()->last_used_ns = monotonic_ns();
  }
}

std::vector<Capture> Network::run(const std::vector<Outgoing>& requests) { return Loop(*this, requests).run(); }

}  // namespace dsf::bench
