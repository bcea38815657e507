#include "dsf/comm/collective.h"

#include <doctest/doctest.h>
#include <cstring>
#include <functional>
#include <thread>

using namespace dsf;
using comm::Communicator;

namespace {
// Runs body on every rank, one thread each, and gives back what each returned.
std::vector<Result<void>> on_ranks(int world, int64_t timeout_us, const std::function<Result<void>(Communicator&)>& body) {
  auto group = comm::in_process_group(world, timeout_us);
  std::vector<Result<void>> results(static_cast<size_t>(world));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] { results[static_cast<size_t>(r)] = body(*group[static_cast<size_t>(r)]); });
  }
  return results;
}
constexpr int64_t kLong = 10'000'000, kShort = 100'000;
}  // namespace

TEST_CASE("sums are formed in rank order on every rank, bit for bit") {
  for (int world : {1, 2, 3, 8}) {
    std::vector<std::vector<float>> out(static_cast<size_t>(world));
    const auto results = on_ranks(world, kLong, [&](Communicator& c) -> Result<void> {
      for (int round = 0; round < 50; ++round) {
        std::vector<float> v(17);
        for (size_t i = 0; i < v.size(); ++i) v[i] = 1.0f / static_cast<float>(1 + i + static_cast<size_t>(c.rank() * 31 + round));
        DSF_OK(c.all_reduce_sum(v));
        out[static_cast<size_t>(c.rank())] = v;
      }
      return {};
    });
    for (const auto& r : results) REQUIRE(r);
    for (size_t i = 0; i < 17; ++i) {
      float want = 0;
      for (int r = 0; r < world; ++r) {
        const float v = 1.0f / static_cast<float>(1 + i + static_cast<size_t>(r * 31 + 49));
        want = r == 0 ? v : want + v;
      }
      for (const auto& o : out) CHECK(o[i] == want);
    }
  }
}

TEST_CASE("gather and broadcast move the right bytes") {
  const auto results = on_ranks(3, kLong, [](Communicator& c) -> Result<void> {
    const int32_t mine = 10 + c.rank();
    std::vector<int32_t> all(3);
    DSF_OK(c.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
    if (all != std::vector<int32_t>{10, 11, 12}) return fail(Code::kBug, "gather", "wrong bytes");
    int32_t told = c.rank() == 2 ? 99 : 0;
    DSF_OK(c.broadcast(std::as_writable_bytes(std::span(&told, 1)), 2));
    if (told != 99) return fail(Code::kBug, "broadcast", "wrong bytes");
    return c.barrier();
  });
  for (const auto& r : results) CHECK_MESSAGE(r, r.error().line());
}

TEST_CASE("ranks that call different things are told so, at once and for ever") {
  const auto results = on_ranks(2, kLong, [](Communicator& c) -> Result<void> {
    std::vector<float> v(c.rank() == 0 ? 4 : 5);
    const auto first = c.all_reduce_sum(v);
    const auto second = c.barrier();
    if (first || second) return {};
    if (first.error().line() != second.error().line()) return fail(Code::kBug, "", "the error did not stick");
    return fail(first.error());
  });
  for (const auto& r : results) {
    REQUIRE_FALSE(r);
    CHECK(r.error().code == Code::kRemote);
    CHECK(r.error().cls == "divergence");
  }
}

TEST_CASE("a rank that never comes is a timeout that names the waiter") {
  const auto results = on_ranks(2, kShort, [](Communicator& c) -> Result<void> { return c.rank() == 0 ? c.barrier() : Result<void>{}; });
  REQUIRE_FALSE(results[0]);
  CHECK(results[0].error().cls == "timeout");
  CHECK(results[0].error().what.starts_with("rank 0 waited 100 ms in barrier for 1 of 2 ranks"));
}

TEST_CASE("abort ends the waits of every rank") {
  const auto results = on_ranks(2, kLong, [](Communicator& c) -> Result<void> {
    if (c.rank() == 0) return c.barrier();
    c.abort("test");
    return c.barrier();
  });
  for (const auto& r : results) {
    REQUIRE_FALSE(r);
    CHECK(r.error().cls == "aborted");
  }
}

TEST_CASE("agreement on facts, or the first difference by name") {
  const auto run = [](bool same) {
    return on_ranks(2, kLong, [same](Communicator& c) {
      const std::vector<std::pair<std::string, std::string>> facts{{"plan", "abc"}, {"weights", same || c.rank() == 0 ? "111" : "222"}};
      return comm::agree(c, facts);
    });
  };
  for (const auto& r : run(true)) CHECK(r);
  for (const auto& r : run(false)) {
    REQUIRE_FALSE(r);
    CHECK(r.error().what == "rank 0 has weights=111, rank 1 has weights=222");
    CHECK(r.error().code == Code::kUsage);
  }
  CHECK(comm::agree(*comm::single_rank(), {}));
}
