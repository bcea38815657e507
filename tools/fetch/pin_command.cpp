#include "tools/fetch/pin_command.h"

#include <algorithm>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "tools/fetch/get.h"

namespace dsf::fetch {
namespace {

constexpr uint64_t kMaxGitFile = 64 * kMiB;

Result<manifest::PinFile> pin_file(const manifest::Pin& base, const std::string& commit, const hub::Entry& e,
                                   hub::Hub& hub) {
  manifest::PinFile f;
  if (const manifest::PinFile* old = base.find(e.path); old != nullptr && old->sha256 == e.sha256)
    f = *old;  // keeps header facts and pieces
  f.path = e.path;
  f.size = e.size;
  f.lfs = e.lfs;
  f.sha256 = e.sha256;
  f.git_sha1 = e.git_sha1;
  f.xet_hash = e.xet_hash;
  f.role = manifest::guess_role(e.path);
  if (e.lfs) return f;
  DSF_TRY(const std::string content, hub.read_file(base.source.repo, commit, e, kMaxGitFile));
  if (codec::git_blob_sha1(as_bytes(content)) != e.git_sha1) {
    return fail(Code::kContent, manifest::printable(e.path), "git blob id differs from the listing", "try again",
                "digest_mismatch");
  }
  f.sha256 = codec::sha256(content).hex();
  return f;
}

Result<void> save(const std::string& text, const std::filesystem::path& path) {
  if (!path.empty() && path != "-") return io::write_file_atomic(path, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return {};
}

Result<void> update_one(const manifest::PlacedPin& placed, const std::filesystem::path& output, const PinOptions& o,
                        hub::Hub& hub) {
  manifest::Pin base = placed.pin;
  if (!o.filter.include.empty() || !o.filter.exclude.empty()) base.select = o.filter;
  DSF_TRY(const manifest::Pin pin,
          make_pin(base, o.revision.empty() ? base.source.requested_revision : o.revision, hub));
  const manifest::PinDiff diff = manifest::diff(placed.pin, pin);
  for (const std::string& line : diff.lines)
    std::fprintf(stderr, "%s: %s\n", placed.file.filename().c_str(), line.c_str());
  if (diff.empty()) cli::log(cli::Level::kInfo, "nothing to do", {{"pin", placed.file.string()}});
  if (o.dry_run || (diff.empty() && output == placed.file)) return {};
  return save(manifest::write(pin), output);
}

// A new pin over an existing one must not change pinned content unless it was asked for.
Result<void> guard_existing(const manifest::Pin& pin, const std::filesystem::path& output) {
  std::error_code ignored;
  if (output.empty() || output == "-" || !std::filesystem::exists(output, ignored)) return {};
  DSF_TRY(const manifest::Pin old, manifest::load_pin(output));
  if (!manifest::diff(old, pin).content_changed) return {};
  return fail(Code::kContent, output.string(), "pinned content changed on the Hub",
              "look at it with --update --dry-run, then give --update", "changed");
}

}  // namespace

Result<manifest::Pin> make_pin(const manifest::Pin& base, const std::string& revision, hub::Hub& hub) {
  DSF_TRY(const hub::Revision rev, hub.resolve_revision(base.source.repo, revision));
  DSF_TRY(const auto entries, hub.list(base.source.repo, rev.commit));
  manifest::Pin pin = base;
  pin.source.requested_revision = revision;
  pin.source.revision = rev.commit;
  pin.files.clear();
  for (const hub::Entry& e : entries) {
    if (!pin.select.takes(e.path)) continue;
    DSF_TRY(manifest::PinFile f, pin_file(base, rev.commit, e, hub));
    pin.files.push_back(std::move(f));
  }
  pin.complete = pin.files.size() == entries.size();
  if (pin.files.empty())
    return fail(Code::kUsage, pin.source.repo, "the selection matches no file", "see dsf-fetch ls " + pin.source.repo);
  if (pin.open()) {
    return fail(Code::kContent, pin.source.repo,
                "does not meet what the pin expects: " + manifest::printable(pin.open_items(1).front()),
                "check that the release is whole, or correct \"expect\" in the pin", "expectation");
  }
  return pin;
}

Result<int> run_pin(const PinOptions& o, const std::shared_ptr<hub::Shared>& shared) {
  hub::Hub hub(shared);
  std::error_code ignored;
  if (o.what.ends_with(".json") && std::filesystem::exists(o.what, ignored)) {
    if (!o.update) return fail(Code::kUsage, o.what, "is a manifest", "give --update to fill or renew it");
    DSF_TRY(const manifest::Deployment deployment, manifest::load_deployment(o.what));
    if (deployment.pins.size() > 1 && !o.output.empty())
      return fail(Code::kUsage, "-o", "cannot be given for a deployment", "its pins are updated in place");
    for (const manifest::PlacedPin& placed : deployment.pins)
      DSF_OK(update_one(placed, o.output.empty() ? placed.file : o.output, o, hub));
    return 0;
  }
  DSF_TRY(const hub::RepoSpec spec, hub::parse_repo(o.what, shared->settings.endpoint));
  manifest::Pin base;
  base.source.repo = spec.repo;
  base.name = o.name.empty() ? spec.repo.substr(spec.repo.rfind('/') + 1) : o.name;
  base.select = o.filter;
  const std::string revision = !spec.revision.empty() ? spec.revision : !o.revision.empty() ? o.revision : "main";
  DSF_TRY(const manifest::Pin pin, make_pin(base, revision, hub));
  if (!o.update) DSF_OK(guard_existing(pin, o.output));
  if (!o.dry_run) DSF_OK(save(manifest::write(pin), o.output));
  return 0;
}

Result<int> run_ls(const LsOptions& o, const std::shared_ptr<hub::Shared>& shared) {
  hub::Hub hub(shared);
  DSF_TRY(const hub::RepoSpec spec, hub::parse_repo(o.what, shared->settings.endpoint));
  const std::string revision = !spec.revision.empty() ? spec.revision : !o.revision.empty() ? o.revision : "main";
  DSF_TRY(const hub::Revision rev, hub.resolve_revision(spec.repo, revision));
  DSF_TRY(const auto entries, hub.list(spec.repo, rev.commit));
  json::Value files = json::Value::array();
  uint64_t bytes = 0, shown = 0;
  for (const hub::Entry& e : entries) {
    if (!o.filter.takes(e.path)) continue;
    bytes += e.size;
    ++shown;
    if (!o.json) {
      std::printf("%15llu  %-64s  %s\n", static_cast<unsigned long long>(e.size),
                  (e.lfs ? e.sha256 : e.git_sha1).c_str(), manifest::printable(e.path).c_str());
      continue;
    }
    json::Value v = json::Value::object();
    v.set("path", e.path);
    v.set("size", e.size);
    v.set("lfs", e.lfs);
    v.set(e.lfs ? "sha256" : "git_sha1", e.lfs ? e.sha256 : e.git_sha1);
    files.push(std::move(v));
  }
  if (!o.json) {
    std::printf("%llu files, %s, commit %s\n", static_cast<unsigned long long>(shown), format_bytes(bytes).c_str(),
                rev.commit.c_str());
    return 0;
  }
  json::Value out = json::Value::object();
  out.set("schema", "fetch-list");
  out.set("v", 1);
  out.set("repo", spec.repo);
  out.set("revision", rev.commit);
  out.set("bytes", bytes);
  out.set("files", std::move(files));
  std::printf("%s\n", json::dump(out, json::Style::kPretty).c_str());
  return 0;
}

}  // namespace dsf::fetch
