#include <algorithm>
#include <array>
#include <cstring>

#include "dsf/comm/collective.h"

namespace dsf::comm {
namespace {

// Fixed-size slots, so that one all_gather of equal sizes does whatever a rank has to say.
constexpr size_t kSlot = 256;
using Slot = std::array<char, kSlot>;

Slot pack(const std::string& key, const std::string& value) {
  Slot s{};
  const std::string text = key + "=" + value;
  std::copy_n(text.begin(), std::min(text.size(), kSlot - 1), s.begin());
  return s;
}

}  // namespace

Result<void> agree(Communicator& comm, std::span<const std::pair<std::string, std::string>> facts) {
  const auto world = static_cast<size_t>(comm.world());
  // The number of facts first: an all_gather of different sizes would only say "divergence".
  const uint64_t n = facts.size();
  std::vector<uint64_t> counts(world);
  DSF_OK(comm.all_gather(std::as_bytes(std::span(&n, 1)), std::as_writable_bytes(std::span(counts))));
  if (std::any_of(counts.begin(), counts.end(), [&](uint64_t c) { return c != n; }))
    return fail(Code::kUsage, "ranks", "give different numbers of facts", "run the same version on every rank", "version_skew");

  std::vector<Slot> own, all(facts.size() * world);
  for (const auto& [key, value] : facts) own.push_back(pack(key, value));
  if (own.empty()) return {};
  DSF_OK(comm.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all))));
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t r = 0; r < world; ++r) {
      const Slot& here = all[i];  // rank 0's
      const Slot& there = all[r * own.size() + i];
      if (here != there)
        return fail(Code::kUsage, "ranks", "rank 0 has " + std::string(here.data()) + ", rank " + std::to_string(r) + " has " + there.data(),
                    "give every rank the same checkpoint, configuration and version", "disagree");
    }
  }
  return {};
}

}  // namespace dsf::comm
