#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "fixture.h"

using namespace dsf;
using test::FetchFixture;

namespace {

// Starts the program on the fixture's folder; its output goes nowhere.
pid_t start_program(const FetchFixture& f) {
  const std::string out = (f.dir / "out").string(), endpoint = "HF_ENDPOINT=" + f.hub->endpoint();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, 1);
  dup2(null, 2);
  const char* const argv[] = {DSF_FETCH_PROGRAM, "get",   "org/repo",   "--local-dir", out.c_str(), "-j",      "3",
                              "--piece",         "64KiB", "--no-token", "--reserve",   "0",         "--quiet", nullptr};
  const char* const env[] = {endpoint.c_str(), "HOME=/nonexistent", nullptr};
  execve(DSF_FETCH_PROGRAM, const_cast<char* const*>(argv), const_cast<char* const*>(env));
  _exit(127);
}

int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("a process killed at any moment leaves nothing wrong, and the next one goes on") {
  FetchFixture f;
  constexpr size_t kBig = 12 << 20;
  f.files["big.safetensors"] = test::noise(kBig, 9);
  f.write("hub/org/repo/big.safetensors", f.files["big.safetensors"]);
  f.fault("slow", 4'000'000, -1, "cdn", "big");
  constexpr int kKills = 6;
  for (int i = 0; i < kKills; ++i) {
    const pid_t pid = start_program(f);
    std::this_thread::sleep_for(std::chrono::milliseconds(60 + 70 * i));
    kill(pid, SIGKILL);
    wait_for(pid);
    if (f.exists("big.safetensors")) CHECK((f.read("big.safetensors") == f.files["big.safetensors"]));
  }
  f.hub->clear_faults();
  const int status = wait_for(start_program(f));
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  f.check_complete();
  uint64_t big_bytes = 0;
  for (const auto& e : f.hub->log())
    big_bytes += e.target.find("big") != std::string::npos && e.host == "cdn" ? e.bytes : 0;
  // Each kill may cost the piece in flight of each connection, and what was on its way in socket buffers.
  CHECK(big_bytes <= kBig + kKills * 3 * (64 * kKiB + 6 * kMiB));
  MESSAGE("bytes sent for a file of " << kBig << " over " << kKills << " kills: " << big_bytes);
}

TEST_CASE("a part whose bytes changed under the journal is fetched again where it is wrong") {
  FetchFixture f;
  f.files["big.safetensors"] = test::noise(10 << 20, 9);
  f.write("hub/org/repo/big.safetensors", f.files["big.safetensors"]);
  f.fault("slow", 4'000'000, -1, "cdn", "big");
  const pid_t pid = start_program(f);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  kill(pid, SIGKILL);
  wait_for(pid);
  f.hub->clear_faults();
  const auto parts = io::list_files(f.dir / "out/.cache/fetch/parts");
  REQUIRE(parts);
  for (const std::string& name : *parts) {
    if (!name.ends_with(".part")) continue;
    auto fd = io::open_write(f.dir / "out/.cache/fetch/parts" / name, true);
    REQUIRE(fd);
    REQUIRE(io::write_at(*fd, 100, as_bytes("damage")));
  }
  const int status = wait_for(start_program(f));
  CHECK(WEXITSTATUS(status) == 0);
  f.check_complete();
}

TEST_CASE("SIGINT ends the process as a signal death and leaves the parts for the next run") {
  FetchFixture f;
  f.files["big.safetensors"] = test::noise(10 << 20, 9);
  f.write("hub/org/repo/big.safetensors", f.files["big.safetensors"]);
  f.fault("slow", 1'000'000, -1, "cdn", "big");
  const pid_t pid = start_program(f);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  kill(pid, SIGINT);
  const int status = wait_for(pid);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  f.hub->clear_faults();
  CHECK(WEXITSTATUS(wait_for(start_program(f))) == 0);
  f.check_complete();
}
