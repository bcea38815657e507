#include "dsf/comm/membership.h"

#include <array>

#include "dsf/base/numeric.h"

namespace dsf::comm {
namespace {

using Env = std::function<std::optional<std::string>(const char*)>;

struct Source {
  const char* rank;
  const char* world;
  const char* local;
};
constexpr std::array<Source, 5> kSources{{{"DSF_RANK", "DSF_WORLD", "DSF_LOCAL_RANK"},
                                          {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
                                          {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
                                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                          {"PMI_RANK", "PMI_SIZE", ""}}};

Result<std::optional<int>> number(const Env& env, const char* name) {
  const auto text = *name == '\0' ? std::nullopt : env(name);
  if (!text) return std::optional<int>();
  const auto v = parse_u64(*text);
  if (!v || *v > 1'000'000) return fail(Code::kUsage, name, "is '" + *text + "', a small whole number expected");
  return std::optional<int>(static_cast<int>(*v));
}

Result<std::optional<Membership>> from_environment(const Source& source, const Env& env) {
  DSF_TRY(const auto rank, number(env, source.rank));
  DSF_TRY(const auto world, number(env, source.world));
  if (!rank && !world) return std::optional<Membership>();
  if (!rank || !world) return fail(Code::kUsage, rank ? source.world : source.rank, std::string("is not set, but ") + (rank ? source.rank : source.world) + " is");
  DSF_TRY(const auto local, number(env, source.local));
  return std::optional(Membership{*rank, *world, local.value_or(0), "", source.rank});
}

Result<Membership> chosen(const MembershipFlags& flags, const Env& env) {
  std::optional<Membership> found;
  if (flags.rank || flags.world) {
    if (!flags.rank || !flags.world) return fail(Code::kUsage, flags.rank ? "--world-size" : "--rank", "is needed beside " + std::string(flags.rank ? "--rank" : "--world-size"));
    return Membership{*flags.rank, *flags.world, 0, "", "flags"};
  }
  for (const Source& source : kSources) {
    DSF_TRY(const auto m, from_environment(source, env));
    if (!m) continue;
    if (found && (found->rank != m->rank || found->world != m->world))
      return fail(Code::kUsage, m->source, "says rank " + std::to_string(m->rank) + " of " + std::to_string(m->world) + ", " + found->source + " says rank " +
                  std::to_string(found->rank) + " of " + std::to_string(found->world), "pass --rank and --world-size");
    if (!found) found = m;
  }
  return found.value_or(Membership{0, 1, 0, "", "default"});
}

}  // namespace

Result<Membership> find_membership(const MembershipFlags& flags, const Env& env) {
  DSF_TRY(Membership m, chosen(flags, env));
  if (m.world < 1 || m.rank < 0 || m.rank >= m.world)
    return fail(Code::kUsage, m.source, "rank " + std::to_string(m.rank) + " of " + std::to_string(m.world) + " does not exist", "ranks count from 0");
  m.rendezvous = flags.rendezvous;
  if (m.rendezvous.empty()) m.rendezvous = env("DSF_RENDEZVOUS").value_or("");
  if (m.rendezvous.empty()) {
    // The launcher's port may belong to its own agent: ours is a fixed one beside its address.
    if (const auto address = env("MASTER_ADDR")) m.rendezvous = *address + ":29571";
  }
  if (m.world > 1 && m.rendezvous.empty()) return fail(Code::kUsage, "--rendezvous", "is needed with more than one rank", "pass HOST:PORT of rank 0");
  return m;
}

}  // namespace dsf::comm
