#include "dsf/comm/membership.h"

#include <doctest/doctest.h>
#include <map>

using namespace dsf;

namespace {
Result<comm::Membership> find(comm::MembershipFlags flags, std::map<std::string, std::string> variables) {
  return comm::find_membership(flags, [&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  });
}
}  // namespace

TEST_CASE("without flags and variables a process is alone") {
  const auto m = find({}, {});
  REQUIRE(m);
  CHECK(m->world == 1);
  CHECK(m->source == "default");
}

TEST_CASE("torchrun, srun and mpirun name the rank, flags beat them") {
  CHECK(find({}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "9"}})->rendezvous == "10.0.0.1:29571");
  CHECK(find({}, {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"DSF_RENDEZVOUS", "h:1"}})->rank == 3);
  CHECK(find({}, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"DSF_RENDEZVOUS", "h:1"}})->source == "OMPI_COMM_WORLD_RANK");
  const auto m = find({.rank = 0, .world = 2, .rendezvous = "a:1"}, {{"RANK", "1"}, {"WORLD_SIZE", "4"}});
  REQUIRE(m);
  CHECK(m->world == 2);
  CHECK(m->rendezvous == "a:1");
}

TEST_CASE("contradictions and halves are refused") {
  for (const auto& variables : std::vector<std::map<std::string, std::string>>{{{"RANK", "1"}}, {{"RANK", "x"}, {"WORLD_SIZE", "2"}}, {{"RANK", "2"}, {"WORLD_SIZE", "2"}}, {{"RANK", "0"}, {"WORLD_SIZE", "0"}},
                                                                                {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}}) {
    const auto m = find({}, variables);
    REQUIRE_FALSE(m);
    CHECK(m.error().code == Code::kUsage);
  }
  CHECK_FALSE(find({.rank = 0, .world = {}, .rendezvous = ""}, {}));
}
