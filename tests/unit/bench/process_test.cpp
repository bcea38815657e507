// The program itself, on a terminal and interrupted: what a person sees, and what is left behind.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "tests/unit/bench/fixture.h"

using namespace dsf;
using namespace dsf::bench;
using namespace dsf::bench::test;

namespace {

// dsf-bench with its standard error on a pseudo terminal.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments) : terminal_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    REQUIRE(terminal_ >= 0);
    REQUIRE(grantpt(terminal_) == 0);
    REQUIRE(unlockpt(terminal_) == 0);
    const std::string name = ptsname(terminal_);
    pid_ = fork();
    if (pid_ == 0) start(arguments, name);
  }
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(terminal_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Reads the terminal until the words appear; false after 60 s or at the end of the program.
  bool shows(const std::string& words) {
    while (seen_.find(words) == std::string::npos) {
      pollfd fd{terminal_, POLLIN, 0};
      std::array<char, 4096> buffer{};
      if (poll(&fd, 1, 60'000) <= 0) return false;
      const ssize_t n = read(terminal_, buffer.data(), buffer.size());
      if (n <= 0) return false;
      seen_.append(buffer.data(), static_cast<size_t>(n));
    }
    return true;
  }
  void send(int signal) const { kill(pid_, signal); }
  int wait() {
    shows("\x01 never");  // keeps the terminal drained until the program ends
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  const std::string& seen() const { return seen_; }

 private:
  [[noreturn]] static void start(const std::vector<std::string>& arguments, const std::string& terminal) {
    const int tty = open(terminal.c_str(), O_RDWR), null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(tty, 2);
    std::vector<char*> argv = {const_cast<char*>(DSF_BENCH_PROGRAM)};
    for (const auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(DSF_BENCH_PROGRAM, argv.data());
    _exit(127);
  }
  int terminal_;
  pid_t pid_ = -1;
  std::string seen_;
};

std::vector<std::string> arguments(const ScriptedServer& server, const std::filesystem::path& out) {
  return {"--base-url", server.base_url(), "--model", "scripted", "--label", "test", "--levels", "1-2", "--output-tokens", "40", "--skip-warmup", "--no-probe", "--cooldown-ms", "0",
          "--out", out.string()};
}

// C1 is quick, C2 takes a minute unless it is interrupted.
std::unique_ptr<ScriptedServer> slow_second_level() {
  auto server = ScriptedServer::start({}, [](const json::Value& body, int index) {
    StreamShape s = quick();
    s.max_tokens = static_cast<int>(body.find("max_tokens")->to_i64().value_or(0));
    if (index > 0) s.stall_after_event = 20, s.stall_ms = 60'000;
    return make_script(s);
  });
  REQUIRE(server);
  return std::move(*server);
}

}  // namespace

TEST_CASE("on a terminal one line shows phase, level, live streams and rate while the run goes on") {
  const auto server = slow_second_level();
  const TempDir dir;
  Program program(arguments(*server, dir / "a"));
  CHECK(program.shows("decode thinking off C2"));
  CHECK(program.shows("2 live"));
  CHECK(program.seen().find("1/3 requests") != std::string::npos);
  CHECK(program.seen().find("events/s") != std::string::npos);
}

TEST_CASE("Ctrl-C in the middle of a level: a death by signal, a valid partial record, and a run that can be resumed") {
  const auto server = slow_second_level();
  const TempDir dir;
  {
    Program program(arguments(*server, dir / "a"));
    REQUIRE(program.shows("2 live"));
    program.send(SIGINT);
    const int status = program.wait();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGINT);
    CHECK(program.seen().find("interrupted") != std::string::npos);
  }
  const auto data = load_run(dir / "a");
  REQUIRE(data);
  CHECK(data->state == "aborted");
  REQUIRE(data->requests.size() == 3);
  CHECK(data->requests[0].ok());
  CHECK(data->requests[1].status == Status::kAborted);
  CHECK(data->requests[1].events.size() >= 1);  // what had come is kept
  const auto outcome = write_derived(dir / "a");
  REQUIRE(outcome);
  CHECK(outcome->code == Code::kNo);
  CHECK(json::dump(outcome->summary).find("not_complete") != std::string::npos);

  const auto quick_server = serve(quick());
  Plan plan = plan_for(*quick_server, dir / "a", "1-2", 40);
  plan.settings.warmup = "none";
  plan.resume = true;
  const auto resumed = run_plan(plan);  // another server address, but the same (unknown) weights would be needed
  CHECK_FALSE(resumed);
  CHECK(resumed.error().what.find("other weights") != std::string::npos);
}

TEST_CASE("kill -9 in the middle of a level leaves a record that can be read up to there") {
  const auto server = slow_second_level();
  const TempDir dir;
  {
    Program program(arguments(*server, dir / "a"));
    REQUIRE(program.shows("2 live"));
    program.send(SIGKILL);
    CHECK(WTERMSIG(program.wait()) == SIGKILL);
  }
  const auto data = load_run(dir / "a");
  REQUIRE(data);
  CHECK(data->state == "killed");
  CHECK(data->requests.size() == 1);
  CHECK(write_derived(dir / "a")->code == Code::kNo);
}
