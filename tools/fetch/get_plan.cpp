#include "tools/fetch/get_plan.h"

#include <algorithm>

#include "dsf/codec/sha256.h"
#include "dsf/codec/signature.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"

namespace dsf::fetch {
namespace {

Result<void> select(Plan& plan, const SourceOptions& o) {
  for (const std::string& path : o.paths) {
    if (std::none_of(plan.wanted.begin(), plan.wanted.end(), [&](const Wanted& w) { return w.entry.path == path; })) {
      return fail(Code::kMissing, manifest::printable(path), "is not in " + plan.repo + " at this revision",
                  "see dsf-fetch ls " + plan.repo, "entry");
    }
  }
  const size_t before = plan.wanted.size();
  std::erase_if(plan.wanted, [&](const Wanted& w) {
    const bool named = o.paths.empty() || std::find(o.paths.begin(), o.paths.end(), w.entry.path) != o.paths.end();
    const bool role = o.roles.empty() ||
                      std::find(o.roles.begin(), o.roles.end(), manifest::guess_role(w.entry.path)) != o.roles.end();
    return !named || !role || !o.filter.takes(w.entry.path);
  });
  if (plan.wanted.size() < before) plan.complete = false;
  if (plan.wanted.empty())
    return fail(Code::kUsage, plan.repo, "the filters match no file", "see dsf-fetch ls " + plan.repo);
  return {};
}

hub::Entry entry_of(const manifest::PinFile& f) {
  hub::Entry e;
  e.path = f.path;
  e.size = f.size.value_or(0);
  e.lfs = f.lfs || f.git_sha1.empty();
  e.sha256 = f.sha256;
  e.git_sha1 = f.git_sha1;
  e.pointer_git_sha1 = f.pointer_git_sha1;
  e.xet_hash = f.xet_hash;
  return e;
}

Result<void> list_repo(Planned& p, const std::string& revision, hub::Hub& hub) {
  DSF_TRY(const hub::Revision rev, hub.resolve_revision(p.plan.repo, revision));
  p.plan.commit = rev.commit;
  DSF_TRY(p.listing, hub.list(p.plan.repo, rev.commit));
  return {};
}

// An open pin names files whose size or digest is not known: the listing fills in, and whatever the pin does know still
// holds.
Result<void> fill_open(Planned& p, const manifest::Pin& pin, hub::Hub& hub) {
  DSF_OK(list_repo(p, pin.source.revision.empty() ? pin.source.requested_revision : pin.source.revision, hub));
  for (const hub::Entry& e : p.listing) {
    const manifest::PinFile* pinned = pin.find(e.path);
    if (pinned == nullptr && !pin.select.takes(e.path)) continue;
    hub::Entry entry = e;
    if (pinned != nullptr && !pinned->sha256.empty()) {
      if (e.lfs && e.sha256 != pinned->sha256) {
        return fail(Code::kContent, manifest::printable(e.path), "the Hub's digest differs from the pin",
                    "check the pin against the repository", "changed");
      }
      entry.sha256 = pinned->sha256;
    }
    p.plan.wanted.push_back({std::move(entry)});
  }
  for (const manifest::PinFile& f : pin.files) {
    if (std::none_of(p.listing.begin(), p.listing.end(), [&](const hub::Entry& e) { return e.path == f.path; })) {
      return fail(Code::kMissing, manifest::printable(f.path), "is pinned but not in the repository",
                  "run dsf-fetch pin --update", "entry");
    }
  }
  return {};
}

Result<void> check_pin_signature(const manifest::PlacedPin& placed, const std::filesystem::path& key) {
  const std::string file = placed.file.string() + ".sig";
  const auto text = io::read_text(file, 4096);
  if (!text)
    return fail(Code::kContent, placed.file.string(), "is not signed (no " + file + ")", "get its signature",
                "signature");
  return codec::check_signature(codec::kPinDomain, codec::sha256(placed.bytes), *text, file, key);
}

Result<Planned> plan_pin(const manifest::PlacedPin& placed, const SourceOptions& o,
                         const std::shared_ptr<hub::Shared>& shared, hub::Hub& hub) {
  const manifest::Pin& pin = placed.pin;
  Planned p;
  p.plan.endpoint = shared->settings.endpoint;
  p.plan.repo = pin.source.repo;
  p.plan.commit = pin.source.revision;
  p.plan.pin_name = pin.name;
  p.plan.pin_path = placed.file.string();
  p.plan.pin_sha256 = codec::sha256(placed.bytes).hex();
  p.dir = o.local_dir / placed.subfolder;
  if (!o.signature_key.empty()) DSF_OK(check_pin_signature(placed, o.signature_key));
  if (pin.open()) {
    if (!o.allow_open || o.offline) {
      std::string open;
      for (const std::string& item : pin.open_items(3)) open += (open.empty() ? "" : ", ") + manifest::printable(item);
      return fail(Code::kUsage, placed.file.string(), "the pin is open (" + open + ")",
                  "fill it with dsf-fetch pin --update, or give --allow-open to take what the Hub has now", "open_pin");
    }
    DSF_OK(fill_open(p, pin, hub));
  } else {
    p.plan.complete = pin.complete;
    for (const manifest::PinFile& f : pin.files) p.plan.wanted.push_back({entry_of(f)});
  }
  p.pin = pin;
  DSF_OK(select(p.plan, o));
  return p;
}

Result<Planned> plan_repo(const SourceOptions& o, const std::shared_ptr<hub::Shared>& shared, hub::Hub& hub) {
  DSF_TRY(const hub::RepoSpec spec, hub::parse_repo(o.what, shared->settings.endpoint));
  if (!spec.revision.empty() && !o.revision.empty() && spec.revision != o.revision) {
    return fail(Code::kUsage, o.what, "names another revision than --revision", "give one of them");
  }
  Planned p;
  p.dir = o.local_dir;
  p.plan.endpoint = shared->settings.endpoint;
  p.plan.repo = spec.repo;
  const std::string revision = !spec.revision.empty() ? spec.revision : !o.revision.empty() ? o.revision : "main";
  if (o.offline) {
    const auto record = manifest::load_fetch_record(p.dir);
    if (!record || record->repo != spec.repo || (hub::is_commit(revision) && record->revision != revision)) {
      return fail(Code::kOffline, o.what, "offline, and " + p.dir.string() + " holds no record of it",
                  "run once without --offline", "offline");
    }
    p.plan.commit = record->revision;
    p.plan.complete = record->complete;
    for (const manifest::FetchedFile& f : record->files) {
      p.plan.wanted.push_back({{f.path, f.size, f.git_sha1.empty(), f.sha256, f.git_sha1, "", ""}});
    }
  } else {
    DSF_OK(list_repo(p, revision, hub));
    for (const hub::Entry& e : p.listing) p.plan.wanted.push_back({e});
    p.plan.complete = true;
  }
  DSF_OK(select(p.plan, o));
  return p;
}

}  // namespace

Result<std::vector<Planned>> make_plans(const SourceOptions& o, const std::shared_ptr<hub::Shared>& shared) {
  hub::Hub hub(shared);
  std::vector<Planned> plans;
  std::error_code ignored;
  if (o.what.ends_with(".json") && std::filesystem::exists(o.what, ignored)) {
    if (!o.revision.empty())
      return fail(Code::kUsage, "--revision", "cannot be given with a pin", "the pin names the revision");
    DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(o.what));
    for (const manifest::PlacedPin& placed : deployment.pins) {
      DSF_TRY(Planned p, plan_pin(placed, o, shared, hub));
      plans.push_back(std::move(p));
    }
  } else {
    if (!o.signature_key.empty())
      return fail(Code::kUsage, "--require-signature", "needs a pin", "name a pin instead of a repository");
    DSF_TRY(Planned p, plan_repo(o, shared, hub));
    plans.push_back(std::move(p));
  }
  return plans;
}

}  // namespace dsf::fetch
