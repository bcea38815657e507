// kill -9 at random moments. Eight moments in the normal suite; `ctest -L slow` runs two hundred (fetch_kills).
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "fixture.h"
#include "program.h"

using namespace dsf;
using test::FetchFixture;
using test::Program;

namespace {

constexpr uint64_t kBigBytes = 12 << 20;
constexpr uint64_t kPiece = 64 * kKiB;
const std::string kBig = "big.safetensors";

void add_big(FetchFixture& f) {
  f.files[kBig] = test::noise(kBigBytes, 9);
  f.write("hub/org/repo/" + kBig, f.files[kBig]);
}

int kills_wanted() {
  const char* n = std::getenv("DSF_KILLS");  // NOLINT(concurrency-mt-unsafe): nobody calls setenv
  return n == nullptr ? 8 : std::atoi(n);
}

// Pieces that the journal of the big file claims.
uint64_t claimed_pieces(const FetchFixture& f) {
  const auto parts = f.dir / "out/.cache/fetch/parts";
  const auto names = io::list_files(parts);
  uint64_t most = 0;
  if (!names) return 0;
  for (const std::string& name : *names) {
    const auto text = name.ends_with(".journal") ? io::read_text(parts / name) : Result<std::string>("");
    if (!text) continue;
    uint64_t n = 0;
    for (size_t at = text->find("\nP "); at != std::string::npos; at = text->find("\nP ", at + 1)) ++n;
    most = std::max(most, n);
  }
  return most;
}

uint64_t network_bytes(const test::Finished& done) {
  uint64_t n = 0;
  const auto events = json::parse_lines(done.out, "events");
  REQUIRE(events);
  for (const json::Value& e : *events) {
    if (const json::Value* v = e.find("network_bytes")) n = v->to_u64().value_or(0);
  }
  return n;
}

}  // namespace

TEST_CASE(
    "a process killed at any moment leaves nothing wrong, and the next one fetches one piece a connection again") {
  FetchFixture f;
  add_big(f);
  std::mt19937 random(20261130);
  const int kills = kills_wanted();
  uint64_t rounds = 0, saved = 0, resumed = 0;
  for (int done = 0; done < kills; ++rounds) {
    std::filesystem::remove_all(f.dir / "out");
    f.hub->clear_faults();
    f.fault("slow", 4'000'000, -1, "cdn", "big");
    // Several kills of one download, each at a moment of its own, then a run to the end.
    const int here = std::min(kills - done, 4);
    for (int i = 0; i < here; ++i, ++done) {
      const uint64_t before = claimed_pieces(f);
      const pid_t pid = Program(f).start();
      std::this_thread::sleep_for(std::chrono::milliseconds(30 + random() % (kills > 8 ? 1500 : 400)));
      kill(pid, SIGKILL);
      int status = 0;
      waitpid(pid, &status, 0);
      CHECK(claimed_pieces(f) >= (f.exists(kBig) ? 0 : before));  // nothing finished is ever lost
      if (f.exists(kBig)) CHECK((f.read(kBig) == f.files[kBig]));
    }
    f.hub->clear_faults();
    const uint64_t claimed = claimed_pieces(f);
    uint64_t missing = 0;
    for (const auto& [path, content] : f.files) missing += f.exists(path) ? 0 : content.size();
    const bool was_there = f.exists(kBig);
    Program last(f);
    last.args = {"--json"};
    const auto end = last.run();
    CHECK_MESSAGE(end.code() == 0, end.err);
    f.check_complete();
    if (was_there) continue;
    // The journal names all that was whole, and the last run receives the rest and nothing else: so what was received
    // twice is what a killed run had in flight, at most one piece a connection.
    const uint64_t received = network_bytes(end), rest = missing - std::min(kBigBytes, claimed * kPiece);
    CHECK(received == rest);
    saved += claimed * kPiece;
    ++resumed;
  }
  MESSAGE(kills << " kills in " << rounds << " downloads of " << kBigBytes << " bytes; " << resumed
                << " went on from a part, " << saved << " bytes were not fetched again");
  CHECK(resumed > 0);
}

TEST_CASE("a part whose bytes changed under the journal is fetched again where it is wrong") {
  FetchFixture f;
  add_big(f);
  f.fault("slow", 4'000'000, -1, "cdn", "big");
  const Program p(f);
  const pid_t pid = p.start();
  while (claimed_pieces(f) < 5) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(pid, SIGKILL);
  p.wait(pid);
  f.hub->clear_faults();
  const auto parts = io::list_files(f.dir / "out/.cache/fetch/parts");
  REQUIRE(parts);
  for (const std::string& name : *parts) {
    if (!name.ends_with(".part")) continue;
    auto fd = io::open_write(f.dir / "out/.cache/fetch/parts" / name, true);
    REQUIRE(fd);
    REQUIRE(io::write_at(*fd, 100, as_bytes("damage")));
  }
  CHECK(p.run().code() == 0);
  f.check_complete();
}

TEST_CASE("SIGINT ends the process as a signal death and leaves the parts for the next run") {
  FetchFixture f;
  add_big(f);
  f.fault("slow", 1'000'000, -1, "cdn", "big");
  const Program p(f);
  const pid_t pid = p.start();
  while (claimed_pieces(f) < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(pid, SIGINT);
  CHECK(p.wait(pid).code() == -SIGINT);
  CHECK_FALSE(f.exists(".cache/fetch/OWNER"));
  f.hub->clear_faults();
  CHECK(p.run().code() == 0);
  f.check_complete();
}
