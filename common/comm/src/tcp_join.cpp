#include "tcp_join.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "dsf/base/time.h"

namespace dsf::comm {
namespace {

constexpr std::array<char, 4> kMagic{'D', 'S', 'F', 'C'};
constexpr uint32_t kProtocol = 1;
constexpr int64_t kHelloNs = 5'000'000'000, kRedialMs = 250;

enum class Role : uint32_t { kData, kFate };

// The first bytes of every connection. Little endian, as every machine this runs on.
struct Hello {
  std::array<char, 4> magic = kMagic;
  uint32_t protocol = kProtocol, world = 0, rank = 0, role = 0, reserved = 0;
  uint64_t nonce = 0;  // joins the two connections of one process
  std::array<char, 160> version{};
};
// Rank 0's answer on the data connection: welcome once everybody is there, or why not.
struct Answer {
  int32_t code = 0;  // 0: welcome
  std::array<char, 16> cls{};
  std::array<char, 236> text{};
};

template <size_t N>
void put(std::array<char, N>& to, const std::string& text) {
  to = {};
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}
template <size_t N>
std::string get(const std::array<char, N>& from) {
  return std::string(from.data(), ::strnlen(from.data(), N));
}

void answer(const Socket& to, Code code, const std::string& cls, const std::string& text) {
  Answer a;
  a.code = static_cast<int32_t>(code);
  put(a.cls, cls);
  put(a.text, text);
  (void)to.send_value(a, monotonic_ns() + kHelloNs);
}

// What a newcomer has other than rank 0.
std::optional<Error> difference(const TcpOptions& o, const Hello& h) {
  const std::string subject = "rank " + std::to_string(h.rank);
  if (h.protocol != kProtocol)
    return Error{Code::kUsage, subject, "speaks protocol " + std::to_string(h.protocol) + ", rank 0 protocol " + std::to_string(kProtocol), "run the same version on every rank", "version_skew"};
  if (get(h.version) != o.version.substr(0, h.version.size() - 1))
    return Error{Code::kUsage, subject, "runs " + get(h.version) + ", rank 0 runs " + o.version, "run the same version on every rank", "version_skew"};
  if (std::cmp_not_equal(h.world, o.world))
    return Error{Code::kUsage, subject, "was started with world size " + std::to_string(h.world) + ", rank 0 with " + std::to_string(o.world), "give every rank the same --world-size", "world"};
  if (h.rank == 0 || std::cmp_greater_equal(h.rank, o.world))
    return Error{Code::kUsage, subject, "does not exist beside rank 0 of " + std::to_string(o.world), "give every process its own --rank", "world"};
  return std::nullopt;
}

struct Pending {
  Socket data, fate;
  uint64_t nonce = 0;
  bool complete() const { return data.open() && fate.open(); }
};

std::string missing_ranks(const std::vector<Pending>& ranks) {
  std::string out;
  for (size_t r = 1; r < ranks.size(); ++r)
    if (!ranks[r].complete()) out += (out.empty() ? "" : ", ") + std::to_string(r);
  return out;
}

// Takes one connection in. An error ends the start on every rank; who is no member is dropped without a word.
Result<void> admit(const TcpOptions& o, Socket socket, std::vector<Pending>& ranks) {
  Hello h;
  if (socket.receive_value(h, monotonic_ns() + kHelloNs) != Wire::kOk || h.magic != kMagic) return {};
  if (const auto error = difference(o, h)) {
    answer(socket, error->code, error->cls, error->what);
    return fail(*error);
  }
  Pending& place = ranks[h.rank];
  if (place.data.open() && place.data.hung_up()) place = Pending();  // it died while we waited for others
  if (place.nonce != 0 && place.nonce != h.nonce) {
    answer(socket, Code::kBusy, "rank_taken", "rank " + std::to_string(h.rank) + " is there already");
    return {};
  }
  place.nonce = h.nonce;
  (h.role == static_cast<uint32_t>(Role::kData) ? place.data : place.fate) = std::move(socket);
  return {};
}

Result<Joined> gather_ranks(const TcpOptions& o, const Endpoint& at) {
  DSF_TRY(const Socket listener, listen_on(at, 2 * o.world));
  const int64_t deadline = monotonic_ns() + o.join_timeout_us * 1000;
  std::vector<Pending> ranks(static_cast<size_t>(o.world));
  Result<void> fine;
  while (fine && !missing_ranks(ranks).empty()) {
    Socket next = accept_from(listener, deadline);
    if (next.open()) fine = admit(o, std::move(next), ranks);
    else if (monotonic_ns() >= deadline)
      fine = fail(Code::kRemote, "rank " + missing_ranks(ranks), "did not come to " + o.rendezvous + " within " + std::to_string(o.join_timeout_us / 1'000'000) + " s", "start it, or look at its log", "timeout");
  }
  Joined out;
  for (int r = 1; r < o.world; ++r) {
    Pending& p = ranks[static_cast<size_t>(r)];
    if (!p.data.open()) continue;
    if (fine) answer(p.data, Code::kOk, "", "");
    else answer(p.data, Code::kRemote, "peer_lost", fine.error().subject + ": " + fine.error().what);
    out.peers.push_back({r, std::move(p.data), std::move(p.fate)});
  }
  DSF_OK(fine);
  return out;
}

uint64_t nonce() {
  std::random_device random;
  return ((static_cast<uint64_t>(random()) << 32) | random()) | 1;
}

// Both connections with their greetings; closed sockets when rank 0 is not there (yet). Rank 0 may refuse on the first connection and be
// gone before the second: its answer waits on the first.
Result<Joined::Peer> greet(const TcpOptions& o, const Endpoint& to, int64_t deadline) {
  Hello h;
  h.world = static_cast<uint32_t>(o.world);
  h.rank = static_cast<uint32_t>(o.rank);
  h.nonce = nonce();
  put(h.version, o.version);
  Joined::Peer head;
  for (const auto& [role, socket] : {std::pair(Role::kData, &head.data), std::pair(Role::kFate, &head.fate)}) {
    DSF_TRY(*socket, dial(to, std::min(deadline, monotonic_ns() + kHelloNs)));
    if (!socket->open()) return head;
    h.role = static_cast<uint32_t>(role);
    if (socket->send_value(h, monotonic_ns() + kHelloNs) != Wire::kOk) return head;
  }
  return head;
}

Result<Joined> dial_head(const TcpOptions& o, const Endpoint& to) {
  const int64_t deadline = monotonic_ns() + o.join_timeout_us * 1000;
  while (true) {
    DSF_TRY(Joined::Peer head, greet(o, to, deadline));
    Answer a;
    const Wire got = head.data.open() ? head.data.receive_value(a, head.fate.open() ? deadline : monotonic_ns() + kHelloNs) : Wire::kClosed;
    if (got == Wire::kOk && a.code == 0 && head.fate.open()) {
      Joined out;
      out.peers.push_back(std::move(head));
      return out;
    }
    if (got == Wire::kOk && a.code != 0) return fail(static_cast<Code>(a.code), "rank " + std::to_string(o.rank), "rank 0 refuses: " + get(a.text), "start every rank with the same version and arguments", get(a.cls));
    if (monotonic_ns() >= deadline)
      return fail(Code::kRemote, o.rendezvous, "rank " + std::to_string(o.rank) + " was not taken in within " + std::to_string(o.join_timeout_us / 1'000'000) + " s", "start rank 0 there, or look at its log", "timeout");
    std::this_thread::sleep_for(std::chrono::milliseconds(kRedialMs));  // nobody there, or rank 0 was started anew
  }
}

}  // namespace

Result<Joined> join(const TcpOptions& o) {
  DSF_TRY(const Endpoint at, parse_endpoint(o.rendezvous));
  return o.rank == 0 ? gather_ranks(o, at) : dial_head(o, at);
}

}  // namespace dsf::comm
