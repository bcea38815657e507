#include "dsf/comm/tcp.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "dsf/base/time.h"

using namespace dsf;
using comm::Communicator;

namespace {

// A port of the loopback interface that was free a moment ago.
std::string free_rendezvous() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
}

comm::TcpOptions options(const std::string& rendezvous, int rank, int world) {
  comm::TcpOptions o;
  o.rank = rank;
  o.world = world;
  o.rendezvous = rendezvous;
  o.version = "test 1";
  o.join_timeout_us = 30'000'000;
  o.silence_us = 10'000'000;  // machines that build beside the tests are slow
  return o;
}

std::vector<Result<void>> on_ranks(int world, const std::function<Result<void>(Communicator&)>& body,
                                   const std::function<void(comm::TcpOptions&)>& change = {}) {
  const std::string rendezvous = free_rendezvous();
  std::vector<Result<void>> results(static_cast<size_t>(world));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        const auto run = [&]() -> Result<void> {
          auto o = options(rendezvous, r, world);
          if (change) change(o);
          DSF_TRY(const auto comm, comm::join_tcp_group(o));
          return body(*comm);
        };
        results[static_cast<size_t>(r)] = run();
      });
  }
  return results;
}

void fine(const std::vector<Result<void>>& results) {
  for (const auto& r : results) CHECK_MESSAGE(r, (r ? std::string() : r.error().line()));
}

}  // namespace

TEST_CASE("collectives over TCP give the bits of the in-process group") {
  for (const int world : {2, 3}) {
    fine(on_ranks(world, [world](Communicator& c) -> Result<void> {
      for (int round = 0; round < 20; ++round) {
        std::vector<float> v(5000), want(v.size());
        for (size_t i = 0; i < v.size(); ++i) {
          const auto of = [&](int rank) { return 1.0f / static_cast<float>(1 + i + static_cast<size_t>(rank * 31 + round)); };
          v[i] = of(c.rank());
          for (int r = 0; r < world; ++r) want[i] = r == 0 ? of(r) : want[i] + of(r);
        }
        DSF_OK(c.all_reduce_sum(v));
        if (v != want) return fail(Code::kBug, "sum", "differs");
      }
      const int32_t mine = 10 + c.rank();
      std::vector<int32_t> all(static_cast<size_t>(world));
      DSF_OK(c.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
      for (int r = 0; r < world; ++r)
        if (all[static_cast<size_t>(r)] != 10 + r) return fail(Code::kBug, "gather", "differs");
      for (int root = 0; root < world; ++root) {
        int32_t told = c.rank() == root ? 99 + root : 0;
        DSF_OK(c.broadcast(std::as_writable_bytes(std::span(&told, 1)), root));
        if (told != 99 + root) return fail(Code::kBug, "broadcast", "differs");
      }
      return c.barrier();
    }));
  }
}

TEST_CASE("what rank 0 tells is heard in order, with its length") {
  fine(on_ranks(3, [](Communicator& c) -> Result<void> {
    for (size_t n : {size_t{0}, size_t{1}, size_t{300'000}}) {
      if (c.rank() == 0) {
        DSF_OK(c.tell(std::vector<std::byte>(n, std::byte{7})));
        continue;
      }
      DSF_TRY(const auto message, c.hear());
      if (message != std::vector<std::byte>(n, std::byte{7})) return fail(Code::kBug, "hear", "differs");
    }
    return c.barrier();
  }));
}

TEST_CASE("ranks that call different things are told so") {
  for (const auto& r : on_ranks(2, [](Communicator& c) -> Result<void> {
         std::vector<float> v(c.rank() == 0 ? 4 : 5);
         return c.all_reduce_sum(v);
       })) {
    REQUIRE_FALSE(r);
    CHECK(r.error().code == Code::kRemote);
  }
}

TEST_CASE("a wait for a rank that never calls is a timeout that names step and rank") {
  const auto results = on_ranks(2, [](Communicator& c) -> Result<void> {
    c.enter({"step", 17, 200'000});
    if (c.rank() == 0) return c.barrier();
    while (c.check()) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the other side says that it gave up
    return {};
  });
  REQUIRE_FALSE(results[0]);
  CHECK(results[0].error().line() == "rank 0, step 17: waited 200 ms in barrier for rank 1; look at that rank's log");
  CHECK(results[0].error().cls == "timeout");
}

TEST_CASE("abort ends the waits of every rank") {
  for (const auto& r : on_ranks(3, [](Communicator& c) -> Result<void> {
         if (c.rank() == 1) c.abort("test");
         return c.barrier();
       })) {
    REQUIRE_FALSE(r);
    CHECK(r.error().code == Code::kRemote);
  }
}

TEST_CASE("other versions and world sizes do not join, and every rank learns why") {
  const auto versions = on_ranks(2, [](Communicator&) -> Result<void> { return {}; }, [](comm::TcpOptions& o) { o.version = "test " + std::to_string(o.rank); });
  for (const auto& r : versions) {
    REQUIRE_FALSE(r);
    CHECK(r.error().code == Code::kUsage);
    CHECK(r.error().cls == "version_skew");
    CHECK(r.error().line().find("runs test 1, rank 0 runs test 0") != std::string::npos);
  }
  const auto worlds = on_ranks(2, [](Communicator&) -> Result<void> { return {}; }, [](comm::TcpOptions& o) { o.world += o.rank; });
  for (const auto& r : worlds) {
    REQUIRE_FALSE(r);
    CHECK(r.error().line().find("world size 3, rank 0 with 2") != std::string::npos);
  }
}

TEST_CASE("a rank number that is taken is refused, and the group goes on") {
  const std::string rendezvous = free_rendezvous();
  std::vector<Result<void>> results(4);
  std::atomic<bool> one_refused = false;
  {
    std::vector<std::jthread> threads;
    const auto start = [&](size_t slot, int rank) {
      threads.emplace_back([&results, &rendezvous, &one_refused, slot, rank] {
        const auto comm = comm::join_tcp_group(options(rendezvous, rank, 3));
        results[slot] = comm ? (*comm)->barrier() : Result<void>(fail(comm.error()));
        if (!results[slot]) one_refused = true;
      });
    };
    start(0, 0);
    start(1, 1);
    start(2, 1);  // one of these two
    while (!one_refused) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    start(3, 2);
  }
  CHECK(results[0]);
  CHECK(results[3]);
  CHECK(results[1].has_value() != results[2].has_value());
  const auto& refused = results[1] ? results[2] : results[1];
  CHECK(refused.error().code == Code::kBusy);
}

TEST_CASE("a rank that does not come is named, strangers are ignored") {
  const std::string rendezvous = free_rendezvous();
  auto o = options(rendezvous, 0, 3);
  o.join_timeout_us = 600'000;
  std::jthread stranger([&] {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<uint16_t>(std::stoi(rendezvous.substr(rendezvous.find(':') + 1))));
    for (int i = 0; i < 100 && ::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::string text(400, 'x');
    (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    ::close(fd);
  });
  const auto none = comm::join_tcp_group(o);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == Code::kRemote);
  CHECK(none.error().line().find("rank 1, 2: did not come to " + rendezvous) != std::string::npos);
  o.rank = 1;
  CHECK(comm::join_tcp_group(o).error().cls == "timeout");
  o.rendezvous = "nowhere";
  CHECK(comm::join_tcp_group(o).error().code == Code::kUsage);
}

namespace {
// Rank 1 as a process of its own that joins and then does nothing; rank 0 waits in a barrier. What rank 0 gets after signal, and how long it took.
struct Ending {
  Error error;
  double seconds = 0;
  bool told = false;
};
Ending end_by(int signal, int64_t silence_us) {
  const std::string rendezvous = free_rendezvous();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto comm = comm::join_tcp_group(options(rendezvous, 1, 2));
    if (!comm || !(*comm)->barrier()) ::_exit(1);
    for (;;) ::pause();
  }
  auto o = options(rendezvous, 0, 2);
  o.silence_us = silence_us;
  Ending out;
  o.on_lost = [&](const Error&) { out.told = true; };
  auto comm = comm::join_tcp_group(o);
  REQUIRE_MESSAGE(comm, (comm ? std::string() : comm.error().line()));
  REQUIRE((*comm)->barrier());
  ::kill(child, signal);
  const int64_t start = monotonic_ns();
  const auto waited = (*comm)->barrier();
  out.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
  REQUIRE_FALSE(waited);
  out.error = waited.error();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  comm->reset();  // the monitor has ended: told is ours alone
  return out;
}
}  // namespace

TEST_CASE("kill -9 of a rank ends the others' waits within two seconds") {
  const Ending e = end_by(SIGKILL, 10'000'000);
  CHECK(e.error.code == Code::kRemote);
  CHECK(e.error.cls == "peer_lost");
  CHECK(e.error.subject == "rank 1");
  CHECK(e.told);
  CHECK(e.seconds < 2);
}

TEST_CASE("a rank that stands still is lost after the silence that was agreed") {
  const Ending e = end_by(SIGSTOP, 700'000);
  CHECK(e.error.cls == "peer_lost");
  CHECK(e.error.what.starts_with("has been silent for 700 ms"));
}
