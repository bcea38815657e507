#pragma once
// Several processes that serve one model: who this one is, what all must agree on, and what a rank other than 0 does.
// Source: cluster.md 3, 4.2.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dsf/comm/collective.h"
#include "dsf/comm/membership.h"
#include "tools/serve/engine/engine.h"

namespace dsf::serve {

struct ClusterPlan {
  comm::Membership membership;
  int ranks_in_process = 1;
  int64_t step_timeout_us = 20'000'000;     // of a wait for another rank inside a step
  int64_t join_timeout_us = 1'800'000'000;  // for the others to come, and to load
  bool alone() const { return membership.world == 1; }
};

using Facts = std::vector<std::pair<std::string, std::string>>;

// The digest of the split and the configuration, for the ranks to compare before anything is loaded. Errors: kUsage for
// a number of ranks that the shapes do not allow, and those of reading the checkpoint's headers.
Result<std::string> plan_digest(const std::filesystem::path& model_dir, int world);

// Joins the group and compares facts with every rank. From then on a lost rank ends this process: it is logged at once,
// and whatever still holds the process a second later is cut off (exit code 3).
// Errors: kRemote, kUsage and kBusy of join_tcp_group(); kUsage naming the first fact that differs.
Result<std::unique_ptr<comm::Communicator>> join_cluster(const ClusterPlan& plan, const Facts& facts);

// Waits until every rank has loaded.
Result<void> all_loaded(comm::Communicator& comm, const ClusterPlan& plan);

// The life of a rank other than 0 once its engine is open: follows rank 0 until that stops, or until the drain time is
// over after a stop signal. Returns the exit code.
Result<int> follow_cluster(Engine& engine, comm::Communicator& comm, const ClusterPlan& plan, int64_t drain_timeout_us);

}  // namespace dsf::serve
