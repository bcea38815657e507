// shards.proven: the other checks read headers and scales; only a digest proves the weights. Source: hub.md 5.5.
#include <algorithm>

#include "dsf/codec/sha256.h"
#include "dsf/manifest/record.h"
#include "dsf/manifest/stamps.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {

void check_proven(Context& c, Outcome& out) {
  if (!c.checkpoint) return Context::skip(out, "needs shards.open");
  std::vector<std::string> shards;
  for (const safetensors::File& f : c.checkpoint->files()) shards.push_back(f.path().filename().string());
  std::sort(shards.begin(), shards.end());
  const auto proven = manifest::proven_files(c.plan.model, shards);
  std::vector<std::string> unproven;
  std::string lines;
  for (const std::string& s : shards) {
    const auto it = proven.find(s);
    if (it == proven.end())
      unproven.push_back(s);
    else
      lines += it->second + "  " + s + "\n";
  }
  out.summary = std::to_string(proven.size()) + " of " + std::to_string(shards.size()) +
                " shards are as dsf-verify or dsf-fetch found them";
  if (unproven.empty()) c.facts["shards_sha256"] = codec::sha256(lines).hex();
  if (unproven.empty()) return;
  std::error_code ec;
  const bool once = std::filesystem::exists(c.plan.model / manifest::kStampsPath, ec) ||
                    std::filesystem::exists(c.plan.model / manifest::kFetchRecordPath, ec);
  const std::string first = (c.plan.model / unproven.front()).string();
  const std::string fix = "run dsf-verify " + c.plan.model.string() + " --pin FILE";
  // A folder that was once proven and then changed is suspicious; one that nobody ever hashed is merely unknown.
  if (once)
    return out.add({Status::kWarning, "changed",
                    first + ": its last digest is older than its last change, its weights are not checked", fix});
  out.add({Status::kNote, "unproven", first + ": no digest was ever compared here, its weights are not checked", fix});
}

}  // namespace dsf::preflight
