#include "dsf/comm/tcp.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "dsf/base/check.h"
#include "dsf/base/time.h"
#include "fate.h"
#include "tcp_join.h"

namespace dsf::comm {
namespace {

enum class Op : uint32_t { kSum = 1, kGather, kBroadcast, kBarrier, kTell };
constexpr const char* kOpNames[] = {"", "all_reduce_sum", "all_gather", "broadcast", "barrier", "tell"};
constexpr uint64_t kLongestMessage = uint64_t{64} << 20;

// Before every payload. All ranks send equal headers in one exchange; bytes and op are its signature.
struct Header {
  uint32_t magic = 0x44435344, op = 0;
  uint64_t sequence = 0, bytes = 0, root = 0;
  bool operator==(const Header&) const = default;
};

class Tcp final : public Communicator {
 public:
  Tcp(TcpOptions options, Joined joined) : options_(std::move(options)), phase_{"start", 0, options_.timeout_us} {
    std::vector<Fate::Peer> watched;
    for (Joined::Peer& p : joined.peers) {
      peers_.push_back({options_.rank == 0 ? p.rank : 0, std::move(p.data)});
      watched.push_back({peers_.back().rank, std::move(p.fate)});
    }
    fate_.emplace(std::move(watched), options_.silence_us, [this](const Error& e) {
      raise(e);
      if (options_.on_lost) options_.on_lost(e);
    });
  }

  int rank() const override { return options_.rank; }
  int world() const override { return options_.world; }

  Result<void> all_reduce_sum(std::span<float> values) override {
    DSF_TRY(const Header h, begin(Op::kSum, values.size_bytes(), 0));
    if (rank() != 0) {
      DSF_OK(send(0, h, std::as_bytes(values)));
      return receive(0, h, std::as_writable_bytes(values));
    }
    std::vector<float> part(values.size());
    for (size_t p = 0; p < peers_.size(); ++p) {
      DSF_OK(receive(p, h, std::as_writable_bytes(std::span(part))));
      std::transform(values.begin(), values.end(), part.begin(), values.begin(), std::plus<>());
    }
    return send_all(h, std::as_bytes(values));
  }

  Result<void> all_gather(std::span<const std::byte> own, std::span<std::byte> out) override {
    DSF_CHECK(out.size() == own.size() * static_cast<size_t>(world()), "all_gather output holds every rank's bytes");
    DSF_TRY(const Header h, begin(Op::kGather, own.size(), 0));
    if (rank() != 0) {
      DSF_OK(send(0, h, own));
      return receive(0, h, out);
    }
    std::copy(own.begin(), own.end(), out.begin());
    for (size_t p = 0; p < peers_.size(); ++p) DSF_OK(receive(p, h, out.subspan((p + 1) * own.size(), own.size())));
    return send_all(h, out);
  }

  Result<void> broadcast(std::span<std::byte> bytes, int root) override {
    DSF_TRY(const Header h, begin(Op::kBroadcast, bytes.size(), root));
    if (rank() != 0) {
      DSF_OK(send(0, h, rank() == root ? bytes : std::span<std::byte>()));
      return receive(0, h, bytes);
    }
    for (size_t p = 0; p < peers_.size(); ++p) DSF_OK(receive(p, h, peers_[p].rank == root ? bytes : std::span<std::byte>()));
    return send_all(h, bytes);
  }

  Result<void> barrier() override {
    DSF_TRY(const Header h, begin(Op::kBarrier, 0, 0));
    if (rank() != 0) {
      DSF_OK(send(0, h, {}));
      return receive(0, h, {});
    }
    for (size_t p = 0; p < peers_.size(); ++p) DSF_OK(receive(p, h, {}));
    return send_all(h, {});
  }

  Result<void> tell(std::span<const std::byte> message) override {
    DSF_TRY(const Header h, begin(Op::kTell, message.size(), 0));
    return send_all(h, message);
  }

  Result<std::vector<std::byte>> hear() override {
    DSF_TRY(const Header want, begin(Op::kTell, 0, 0));
    Header h;
    DSF_OK(arrived(peers_[0].socket.receive_value(h, kNever), 0, Op::kTell));
    if (h.magic != want.magic || h.op != want.op || h.sequence != want.sequence || h.bytes > kLongestMessage) return fail(diverged(0, want, h));
    std::vector<std::byte> message(h.bytes);
    DSF_OK(arrived(peers_[0].socket.receive(message, deadline()), 0, Op::kTell));
    return message;
  }

  void enter(const Phase& phase) override { phase_ = phase; }

  Result<void> check() const override {
    const std::lock_guard lock(mutex_);
    return error_ ? Result<void>(fail(*error_)) : Result<void>{};
  }

  void abort(const std::string& reason) override {
    raise(Error{Code::kRemote, "rank " + std::to_string(rank()), "aborted: " + reason, "", "aborted"});
    fate_->fail_all(reason);
  }

 private:
  struct Peer {
    int rank = 0;
    Socket socket;
  };

  // The first fault stays, and ends every wait.
  Error raise(const Error& e) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = e;
    for (const Peer& p : peers_) p.socket.shut();
    return *error_;
  }

  int64_t deadline() const { return monotonic_ns() + phase_.timeout_us * 1000; }
  std::string here() const { return "rank " + std::to_string(rank()) + ", " + phase_.name + " " + std::to_string(phase_.step); }

  Result<Header> begin(Op op, size_t bytes, int root) {
    DSF_OK(check());
    Header h;
    h.op = static_cast<uint32_t>(op);
    h.sequence = ++sequence_;
    h.bytes = bytes;
    h.root = static_cast<uint64_t>(root);
    return h;
  }

  Result<void> arrived(Wire w, size_t p, Op op) {
    if (w == Wire::kOk) return {};
    const std::string peer = "rank " + std::to_string(peers_[p].rank), name = kOpNames[static_cast<size_t>(op)];
    if (w == Wire::kTimeout) {
      const Error e{Code::kRemote, here(), "waited " + std::to_string(phase_.timeout_us / 1000) + " ms in " + name + " for " + peer, "look at that rank's log", "timeout"};
      const Error first = raise(e);  // before the others hear of it: what they then say of us is not the cause
      fate_->fail_all(e.subject + " " + e.what);
      return fail(first);
    }
    // The monitor knows more about a connection that ended, and hears of it at about the same time.
    for (int i = 0; i < 20; ++i) {
      DSF_OK(check());
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return fail(raise(Error{Code::kRemote, here(), peer + " closed its connection in " + name, "look at that rank's log", "peer_lost"}));
  }

  Error diverged(size_t p, const Header& own, const Header& got) {
    const auto text = [](const Header& h) {
      const char* name = h.op < std::size(kOpNames) ? kOpNames[h.op] : "?";
      return std::string(name) + " " + std::to_string(h.sequence) + " of " + std::to_string(h.bytes) + " bytes";
    };
    const Error e{Code::kRemote, here(), "calls " + text(own) + ", rank " + std::to_string(peers_[p].rank) + " calls " + text(got), "all ranks must run the same plan", "divergence"};
    const Error first = raise(e);
    fate_->fail_all(e.subject + " " + e.what);
    return first;
  }

  Result<void> send(size_t p, const Header& h, std::span<const std::byte> payload) {
    DSF_OK(arrived(peers_[p].socket.send_value(h, deadline()), p, static_cast<Op>(h.op)));
    return arrived(peers_[p].socket.send(payload, deadline()), p, static_cast<Op>(h.op));
  }
  Result<void> send_all(const Header& h, std::span<const std::byte> payload) {
    for (size_t p = 0; p < peers_.size(); ++p) DSF_OK(send(p, h, payload));
    return {};
  }
  Result<void> receive(size_t p, const Header& want, std::span<std::byte> payload) {
    Header h;
    DSF_OK(arrived(peers_[p].socket.receive_value(h, deadline()), p, static_cast<Op>(want.op)));
    if (h != want) return fail(diverged(p, want, h));
    return arrived(peers_[p].socket.receive(payload, deadline()), p, static_cast<Op>(want.op));
  }

  const TcpOptions options_;
  std::vector<Peer> peers_;
  Phase phase_;
  uint64_t sequence_ = 0;
  mutable std::mutex mutex_;  // guards error_
  std::optional<Error> error_;
  std::optional<Fate> fate_;  // last: its thread uses the rest
};

}  // namespace

Result<std::unique_ptr<Communicator>> join_tcp_group(TcpOptions options) {
  if (options.world < 2 || options.rank < 0 || options.rank >= options.world)
    return fail(Code::kUsage, "rank " + std::to_string(options.rank) + " of " + std::to_string(options.world), "is no rank of a group of processes");
  DSF_TRY(Joined joined, join(options));
  return std::unique_ptr<Communicator>(std::make_unique<Tcp>(std::move(options), std::move(joined)));
}

}  // namespace dsf::comm
