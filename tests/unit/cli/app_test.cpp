#include "dsf/cli/app.h"

#include <array>
#include <cstdlib>
#include <doctest/doctest.h>

#include "dsf/cli/version.h"

using namespace dsf;

namespace {

struct Options {
  cli::CommonFlags common;
  std::string url, mode = "off", dir;
  std::vector<std::string> include, rest;
  int64_t lines = 1, wait_us = 0;
  uint64_t limit = 0;
};

Result<std::optional<int>> parse(Options& o, std::vector<std::string> words) {
  cli::App app({"dsf-test", "Tests the command line.", {{"dsf-test x", "does x"}}});
  app.option("--base-url", o.url, "server", "URL").choice("--mode", o.mode, {"off", "75"}, "thinking");
  app.option("-l,--lines", o.lines, "count", 1, 100).bytes("--limit", o.limit, "size").duration("--wait", o.wait_us, "time");
  app.list("--include", o.include, "pattern").positional("DIR", o.dir, "folder").common(o.common, cli::kJson | cli::kJobs);
  words.insert(words.begin(), "dsf-test");
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  return app.parse({static_cast<int>(argv.size()), argv.data()});
}

}  // namespace

TEST_CASE("flags fill the variables they are bound to") {
  Options o;
  const auto r = parse(o, {"--base-url", "http://x", "--mode", "75", "-l", "7", "--limit", "64MiB", "--wait=250ms", "--include", "a*", "--include", "b*", "here", "--json", "-j", "2", "-vv"});
  REQUIRE_MESSAGE(r, r.error().line());
  CHECK_FALSE(r->has_value());
  CHECK(o.url == "http://x");
  CHECK(o.mode == "75");
  CHECK(o.lines == 7);
  CHECK(o.limit == 64u << 20);
  CHECK(o.wait_us == 250'000);
  CHECK(o.include == std::vector<std::string>{"a*", "b*"});
  CHECK(o.dir == "here");
  CHECK(o.common.json);
  CHECK(o.common.jobs == 2);
  CHECK(o.common.verbose == 2);
}

TEST_CASE("a wrong command line is code 2 and names the flag") {
  const std::vector<std::vector<std::string>> wrong{{"d", "--lines", "0"}, {"d", "--lines", "x"}, {"d", "--mode", "on"}, {"d", "--limit", "5XB"}, {"d", "--nope"}, {}};
  for (const auto& words : wrong) {
    Options o;
    const auto r = parse(o, words);
    REQUIRE_FALSE(r);
    CHECK(r.error().code == Code::kUsage);
    CHECK_FALSE(r.error().what.empty());
    if (words.size() > 1) CHECK(r.error().what.find(words[1].substr(2)) != std::string::npos);
  }
}

TEST_CASE("the environment fills what the command line leaves open, and loses against it") {
  ::setenv("DSF_BASE_URL", "http://env", 1);
  Options o;
  REQUIRE(parse(o, {"d"}));
  CHECK(o.url == "http://env");
  Options p;
  REQUIRE(parse(p, {"d", "--base-url", "http://flag"}));
  CHECK(p.url == "http://flag");
  ::unsetenv("DSF_BASE_URL");
}

TEST_CASE("run_main turns errors and exceptions into exit codes") {
  std::string name = "dsf-test";
  std::array<char*, 1> argv{name.data()};
  CHECK(cli::run_main(1, argv.data(), [](cli::Args) -> Result<int> { return 0; }) == 0);
  CHECK(cli::run_main(1, argv.data(), [](cli::Args) -> Result<int> { return fail(Code::kMissing, "f", "not here"); }) == 5);
  CHECK(cli::run_main(1, argv.data(), [](cli::Args) -> Result<int> { throw std::runtime_error("boom"); }) == 70);
}

TEST_CASE("subcommands know whether they were chosen") {
  cli::App app({"dsf-test", "Tests.", {}});
  std::string repo;
  auto& get = app.subcommand("get", "downloads").positional("REPO", repo, "repository");
  auto& ls = app.subcommand("ls", "lists");
  app.require_subcommand();
  std::array<std::string, 3> words{"dsf-test", "get", "org/name"};
  std::array<char*, 3> argv{words[0].data(), words[1].data(), words[2].data()};
  REQUIRE(app.parse({3, argv.data()}));
  CHECK(get.chosen());
  CHECK_FALSE(ls.chosen());
  CHECK(repo == "org/name");
}
