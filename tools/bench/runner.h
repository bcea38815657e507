#pragma once
// One run from its probe to its last record (bench.md 2.5, 2.6, 3.1). Main thread; owns the connections and the raw file.
// runner.cpp: files and one level; run_matrix.cpp: passes; run_load.cpp: open loop and sessions.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/body.h"
#include "tools/bench/control.h"
#include "tools/bench/events.h"
#include "tools/bench/live_view.h"
#include "tools/bench/network.h"
#include "tools/bench/probe.h"
#include "tools/bench/raw_file.h"
#include "tools/bench/resume.h"

namespace dsf::bench {

class Runner {
 public:
  explicit Runner(const Plan& plan);
  // Errors: kRemote, kRefused (probe.h), kUsage when a run cannot be resumed, kMissing "/tokenize", kLocal for the disk.
  Result<void> run();

 private:
  // What one level brought home.
  struct Measured {
    std::vector<Request> requests;
    std::vector<StreamText> texts;
    int64_t failed = 0;
  };
  // One request of a level before it goes out.
  struct Job {
    Planned planned;
    int64_t max_tokens = 0;
    std::optional<int64_t> at_ns;  // schedule; absent: with the barrier
  };

  // runner.cpp
  int64_t planned_requests() const;
  Result<void> open_files();
  Result<void> close_files();
  std::string request_bytes(const Body& body) const;
  Request planned_request(const Job& job, const Body& body, const LevelRecord& level) const;
  Result<Measured> measure(const std::vector<Job>& jobs, LevelRecord level, size_t connections);
  void after_assembly(Request& r, const StreamText& text);
  std::map<std::string, double> scrape();
  void cool_down(bool failures);

  // run_matrix.cpp
  Result<void> run_matrix();
  Result<void> run_pass(const std::string& phase, const std::string& thinking);
  Result<void> warm_up(const std::string& phase, const std::string& thinking);
  Result<void> warm_until_steady(const std::string& phase, const std::string& thinking);
  Result<Measured> run_level(const Level& level, const std::string& phase, const std::string& thinking, int64_t repeat, bool warmup, int64_t attempt);
  Result<void> fit_prompts(std::vector<Level>& levels, const std::string& thinking);
  Result<void> check_tokens(const std::vector<Level>& levels, const std::string& phase, const std::string& thinking, int64_t repeat);
  void compare_tokens(const std::vector<Level>& levels, const std::string& thinking, TokenCheck& check);

  // run_load.cpp
  Result<void> run_rate();
  Result<void> run_sessions();

  const Plan& plan_;
  Control control_;
  Network network_;
  http::Url url_;
  Probe probe_;
  std::unique_ptr<RawWriter> raw_;
  LiveView* view_ = nullptr;
  json::Value run_json_;
  std::string run_id_;
  PartialRun before_;  // with --resume: what an earlier process has measured
  std::map<std::pair<int64_t, int64_t>, int64_t> reported_;  // prompt tokens of the pass that is being run, by c and slot
  int64_t done_ = 0, ok_ = 0;
};

}  // namespace dsf::bench
