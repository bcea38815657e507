// A packer that is killed at a random moment and started again ends with the same bytes.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "made_source.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// A run in a process of its own, ended with SIGKILL after so long; true when it had ended before.
bool run_and_kill(const pack_engram::RawOptions& raw, std::chrono::microseconds after) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(run_pack(raw).code);
  std::this_thread::sleep_for(after);
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status);
}

std::string bytes_of(const std::filesystem::path& dir) { return *io::read_text(dir / "engram-l1-r0of1.bin"); }

}  // namespace

TEST_CASE("killed at random moments and started again: the same bytes, and never half a file under its name") {
  const MadeSource source(MadeSource::Size::kBlocks);
  TempDir whole, out;
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(run_pack(packing(source, whole.path())).code == 0);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  const std::string want = bytes_of(whole.path());
  std::mt19937 rng(11);
  for (int i = 0; i < 12; ++i) {
    if (i % 4 == 0) std::filesystem::remove(out / "engram-l1-r0of1.bin");
    run_and_kill(packing(source, out.path()),
                 std::chrono::microseconds(rng() % static_cast<uint32_t>(took.count() + 1)));
    if (std::filesystem::exists(out / "engram-l1-r0of1.bin")) CHECK(bytes_of(out.path()) == want);
  }
  const Ran last = run_pack(packing(source, out.path()));
  CHECK_MESSAGE(last.code == 0, last.err);
  CHECK(bytes_of(out.path()) == want);
  CHECK(leftovers(out.path()).empty());
}

TEST_CASE("a part of other tables is not gone on with, and --force starts anew") {
  const MadeSource source(MadeSource::Size::kBlocks);
  TempDir out;
  const auto part = out / ".engram-l1-r0of1.bin.part";
  for (int i = 0; i < 50 && !std::filesystem::exists(part); ++i) {
    std::filesystem::remove(out / "engram-l1-r0of1.bin");
    run_and_kill(packing(source, out.path()), std::chrono::milliseconds(2 * i));
  }
  // The source changes under the part: its bytes are those of the new tables, whatever the part held.
  flip(source.shard[0], std::filesystem::file_size(source.shard[0]) - 1);
  TempDir fresh;
  REQUIRE(run_pack(packing(source, fresh.path())).code == 0);
  REQUIRE(run_pack(packing(source, out.path())).code == 0);
  CHECK(bytes_of(out.path()) == bytes_of(fresh.path()));
  REQUIRE(io::write_file_atomic(part, "junk"));
  auto forced = packing(source, out.path());
  forced.force = true;
  REQUIRE(run_pack(forced).code == 0);
  CHECK(leftovers(out.path()).empty());
  CHECK(bytes_of(out.path()) == bytes_of(fresh.path()));
}
