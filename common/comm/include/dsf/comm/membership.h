#pragma once
// Which rank this process is, from flags or from the launcher's environment. Source: cluster.md 3, "Rank identity".
#include <functional>
#include <optional>
#include <string>

#include "dsf/base/result.h"

namespace dsf::comm {

struct Membership {
  int rank = 0, world = 1;
  int local_rank = 0;        // device on a host with several
  std::string rendezvous;    // "HOST:PORT"; empty when world is 1 and nobody named one
  std::string source;        // what decided: "flags", "DSF_RANK", "RANK", ...
};

struct MembershipFlags {
  std::optional<int> rank, world;
  std::string rendezvous;
};

// env: looks a variable up (std::getenv in programs). Order: flags; DSF_RANK/DSF_WORLD; RANK/WORLD_SIZE (torchrun);
// SLURM_PROCID/SLURM_NTASKS; OMPI_COMM_WORLD_RANK/_SIZE; PMI_RANK/PMI_SIZE; else one rank. Errors: kUsage when one half of a pair is missing,
// a number is malformed or out of range, or two sources disagree (both are named).
Result<Membership> find_membership(const MembershipFlags& flags, const std::function<std::optional<std::string>(const char*)>& env);

}  // namespace dsf::comm
