#include "tools/verify/remote.h"

#include <set>

#include "dsf/cli/signals.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"

namespace dsf::verify {
namespace {

Finding hub_error(const char* code, std::string text) { return {code, Severity::kError, std::move(text)}; }

// Empty when the entry is what the file should be.
std::string difference(const Plan& plan, const std::string& path, const Expected& want, const hub::Entry& entry) {
  if (want.size && *want.size != entry.size)
    return "the Hub has " + std::to_string(entry.size) + " bytes, " + std::to_string(*want.size) + " are expected";
  if (!entry.sha256.empty())
    return want.sha256.empty() || want.sha256 == entry.sha256
               ? ""
               : "the Hub has sha256 " + entry.sha256.substr(0, 12) + ".., " + want.sha256.substr(0, 12) +
                     ".. is expected";
  if (!want.git_sha1.empty())
    return want.git_sha1 == entry.git_sha1 ? ""
                                           : "the Hub has git blob " + entry.git_sha1.substr(0, 12) + ", " +
                                                 want.git_sha1.substr(0, 12) + " is expected";
  const auto here = codec::git_blob_sha1_file(plan.dir / path);
  return !here || *here == entry.git_sha1
             ? ""
             : "the Hub has git blob " + entry.git_sha1.substr(0, 12) + ", the file here is " + here->substr(0, 12);
}

}  // namespace

Result<std::shared_ptr<hub::Shared>> connect(const Plan& plan) {
  DSF_TRY(hub::Settings settings, hub::settings_from(hub::process_environment, {plan.token_file, plan.no_token}));
  if (settings.offline)
    return fail(Code::kOffline, settings.endpoint, "is needed, and the run is offline",
                "unset HF_HUB_OFFLINE, or use --level full", "offline");
  settings.http.user_agent = cli::tool_id("dsf-verify");
  auto shared = std::make_shared<hub::Shared>(std::move(settings), hub::RetryPolicy{});
  shared->stop = cli::stop_requested;
  return shared;
}

Result<std::vector<std::pair<std::string, Finding>>> compare_with_hub(const Plan& plan, const Evidence& evidence,
                                                                      const std::shared_ptr<hub::Shared>& shared) {
  if (evidence.origins.empty())
    return fail(Code::kUsage, "--level hub", "nothing here says which repository and commit", "pass --pin", "usage");
  hub::Hub hub(shared);
  std::vector<std::pair<std::string, Finding>> out;
  for (const Origin& origin : evidence.origins) {
    DSF_TRY(const hub::Revision revision, hub.resolve_revision(origin.repo, origin.revision));
    DSF_TRY(const std::vector<hub::Entry> listing, hub.list(origin.repo, revision.commit));
    std::set<std::string> listed;
    for (const hub::Entry& entry : listing) {
      const std::string path = origin.subfolder + entry.path;
      listed.insert(path);
      const auto want = evidence.files.find(path);
      if (want == evidence.files.end()) {
        if (origin.complete)
          out.emplace_back(path, hub_error("HB03", "is in " + origin.repo + ", but the " + evidence.kind +
                                                       " does not name it; make the pin again"));
        continue;
      }
      if (const std::string what = difference(plan, path, want->second, entry); !what.empty())
        out.emplace_back(path, hub_error("HB01", what + " at " + revision.commit.substr(0, 12) + "; check where the " +
                                                     evidence.kind + " comes from"));
    }
    for (const auto& [path, want] : evidence.files)
      if (path.starts_with(origin.subfolder) && !listed.contains(path) && evidence.origins.size() == 1)
        out.emplace_back(path, hub_error("HB02", "is not in " + origin.repo + " at " + revision.commit.substr(0, 12) +
                                                     "; check where the " + evidence.kind + " comes from"));
  }
  return out;
}

}  // namespace dsf::verify
