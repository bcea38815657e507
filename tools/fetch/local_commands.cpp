// The commands that work on files alone: their flag tables and the way from flags to plans.
#include <cstdio>

#include "dsf/cli/signals.h"
#include "dsf/codec/signature.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"
#include "tools/fetch/bundle.h"
#include "tools/fetch/clean.h"
#include "tools/fetch/get.h"
#include "tools/fetch/publish.h"
#include "tools/fetch/raw.h"

namespace dsf::fetch {
namespace {

Result<int> publish(const Raw& raw) {
  PublishOptions o;
  o.dir = raw.local_dir;
  o.dst = raw.dst;
  using How = PublishOptions::How;
  o.how = raw.how == "hardlink"  ? How::kHardlink
          : raw.how == "copy"    ? How::kCopy
          : raw.how == "reflink" ? How::kReflink
                                 : How::kAuto;
  o.versioned = raw.versioned;
  o.dry_run = raw.common.dry_run;
  o.quiet = raw.common.quiet;
  Events events(raw.common.json);
  return run_publish(o, cli::stop_requested, events);
}

Result<int> create(const Raw& raw) {
  BundleCreateOptions o;
  o.dir = raw.local_dir;
  o.bundle = raw.bundle;
  if (!raw.common.pin.empty()) o.pin = find_manifest(raw.common.pin);
  o.base = raw.base;
  o.volume_bytes = raw.volume;
  o.level = static_cast<int>(raw.level);
  o.quiet = raw.common.quiet;
  Events events(raw.common.json);
  return run_bundle_create(o, cli::stop_requested, events);
}

Result<int> verify(const Raw& raw) {
  Events events(raw.common.json);
  return run_bundle_verify({raw.bundle, raw.signature_key, raw.common.quiet}, cli::stop_requested, events);
}

Result<int> extract(const Raw& raw) {
  BundleExtractOptions o;
  o.bundle = raw.bundle;
  o.local_dir = raw.local_dir;
  o.key = raw.signature_key;
  o.filter = {raw.include, raw.exclude};
  o.reserve_bytes = raw.reserve;
  o.space_check = !raw.no_space_check;
  o.dry_run = raw.common.dry_run;
  o.overwrite = raw.overwrite;
  o.quiet = raw.common.quiet;
  Events events(raw.common.json);
  return run_bundle_extract(o, cli::stop_requested, events);
}

Result<int> clean(const Raw& raw) {
  Events events(raw.common.json);
  return run_clean({raw.local_dir, raw.yes, raw.state, raw.common.quiet}, events);
}

// Of the pin's exact bytes, which must be the one valid form: a signature of another spelling would sign nothing.
Result<int> sign(const Raw& raw) {
  if (raw.key.empty()) return fail(Code::kUsage, "--key", "is missing", "name the private key");
  DSF_TRY(const std::string bytes, io::read_text(raw.what, manifest::kMaxPinBytes));
  DSF_OK(manifest::check_canonical(bytes, raw.what));
  DSF_TRY(const std::string line, codec::sign_digest(codec::kPinDomain, codec::sha256(bytes), raw.key));
  if (raw.common.output == "-") {
    std::fputs(line.c_str(), stdout);
    return 0;
  }
  DSF_OK(io::write_file_atomic(raw.common.output.empty() ? raw.what + ".sig" : raw.common.output, line));
  return 0;
}

void add_bundle(cli::App& app, Raw& raw, std::vector<Handler>& handlers) {
  cli::Command& bundle = app.subcommand("bundle", "Carry a verified folder to a host without a network");
  bundle.require_subcommand();
  cli::Command& c = bundle.subcommand("create", "Write X.bundle.000 ... and X.bundle.SHA256SUMS");
  c.positional("DIR", raw.local_dir, "folder that dsf-fetch get has filled");
  c.positional("BUNDLE", raw.bundle, "name of the volumes without their number, for example /media/disk/X.bundle");
  c.group("Content");
  c.option("--base", raw.base, "pin whose content the receiver has: equal files are left out", "PIN");
  c.group("Form");
  c.bytes("--volume-size", raw.volume, "largest volume; default 64GiB, for FAT32 give 4095MiB");
  c.option("--zstd", raw.level, "zstd level of all files; default 1 for weights, 3 for the rest", 1, 19);
  c.common(raw.common, cli::kJson | cli::kPin);
  handlers.push_back({&c, [&raw] { return create(raw); }});
  cli::Command& v = bundle.subcommand("verify", "Check volumes, frames and files without unpacking");
  v.positional("BUNDLE", raw.bundle, "name of the volumes without their number");
  v.group("Trust");
  v.option("--require-signature", raw.signature_key, "the manifest inside must be signed by this public key (PEM)",
           "KEY");
  v.common(raw.common, cli::kJson);
  handlers.push_back({&v, [&raw] { return verify(raw); }});
  cli::Command& x = bundle.subcommand("extract", "Unpack into a folder, verified as by get");
  x.positional("BUNDLE", raw.bundle, "name of the volumes without their number");
  x.positional("DIR", raw.local_dir, "folder to fill");
  x.group("Selection");
  x.list("--include", raw.include, "take files that match (repeatable; '*' also matches '/')", "GLOB");
  x.list("--exclude", raw.exclude, "leave files that match (repeatable)", "GLOB");
  x.group("Target");
  x.option("--require-signature", raw.signature_key, "the manifest inside must be signed by this public key (PEM)",
           "KEY");
  x.flag("--overwrite", raw.overwrite, "put other content under wanted names aside instead of stopping");
  x.bytes("--reserve", raw.reserve, "free space to keep; default 1GiB");
  x.flag("--no-space-check", raw.no_space_check, "do not compare with the free space (quota systems)");
  x.common(raw.common, cli::kJson | cli::kDryRun);
  handlers.push_back({&x, [&raw] { return extract(raw); }});
}

}  // namespace

void add_local_commands(cli::App& app, Raw& raw, std::vector<Handler>& handlers) {
  cli::Command& p = app.subcommand("publish", "Put a verified folder into a share that others read meanwhile");
  p.positional("DIR", raw.local_dir, "folder that dsf-fetch get has filled");
  p.positional("DST", raw.dst, "folder of the share");
  p.group("Form");
  p.choice("--how", raw.how, {"auto", "hardlink", "copy", "reflink"},
           "weights: auto links on one disk and copies otherwise");
  p.flag("--versioned", raw.versioned, "publish into DST@<commit>, and switch the symbolic link DST");
  p.common(raw.common, cli::kJson | cli::kDryRun);
  handlers.push_back({&p, [&raw] { return publish(raw); }});
  add_bundle(app, raw, handlers);
  cli::Command& c = app.subcommand("clean", "List what interrupted runs left, and remove it with --yes");
  c.positional("DIR", raw.local_dir, "folder that was filled");
  c.flag("--yes", raw.yes, "remove what is listed");
  c.flag("--state", raw.state, "also this tool's record and bookkeeping: before the folder is uploaded");
  c.common(raw.common, cli::kJson);
  handlers.push_back({&c, [&raw] { return clean(raw); }});
  cli::Command& s = app.subcommand("sign", "Sign a pin with an Ed25519 key; without a network");
  s.positional("PIN", raw.what, "the pin");
  s.option("--key", raw.key, "private key (PEM), as openssl genpkey -algorithm ed25519 writes it", "KEY");
  s.common(raw.common, cli::kOutput);
  handlers.push_back({&s, [&raw] { return sign(raw); }});
}

}  // namespace dsf::fetch
