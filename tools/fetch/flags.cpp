// The flag tables of the commands that speak to a Hub.
#include <algorithm>

#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/cli/version.h"
#include "tools/fetch/get.h"
#include "tools/fetch/raw.h"

namespace dsf::fetch {
namespace {

void remote_flags(cli::Command& c, Raw& raw) {
  c.group("Hub");
  c.option("--revision", raw.revision, "branch, tag or commit; default main", "REV");
  c.option("--token-file", raw.token_file, "file with the access token; default HF_TOKEN and the client's own file",
           "FILE");
  c.flag("--no-token", raw.no_token, "send no token");
  c.option("--cacert", raw.cacert, "PEM file of certificate authorities", "FILE");
  c.list("--trusted-host", raw.trusted_hosts, "https host that may get the token too (a mirror's target)", "HOST");
  c.flag("--insecure", raw.insecure, "do not verify TLS certificates; the record says so");
  c.flag("--allow-insecure-token", raw.insecure_token, "send the token over plain http to a public address");
  c.option("--retries", raw.retries, "attempts without progress", 1, 1000);
}

void filter_flags(cli::Command& c, Raw& raw) {
  c.group("Selection");
  c.list("--include", raw.include, "take files that match (repeatable; '*' also matches '/')", "GLOB");
  c.list("--exclude", raw.exclude, "leave files that match (repeatable)", "GLOB");
}

}  // namespace

void get_flags(cli::Command& c, Raw& raw) {
  c.positional("REPO", raw.what, "org/name[@rev], a pin or deployment (.json), or the name of an installed one");
  c.positionals("FILE", raw.paths, "only these files");
  c.group("Target");
  c.option("--local-dir", raw.local_dir, "folder to fill", "DIR");
  c.flag("--overwrite", raw.overwrite, "put other content under wanted names aside instead of stopping");
  c.flag("--allow-open", raw.allow_open, "take what the Hub has now for an open pin");
  c.option("--require-signature", raw.signature_key, "the pin must be signed by this Ed25519 public key (PEM)", "KEY");
  c.flag("--force", raw.force, "hash existing files again, whatever the last record says");
  c.flag("--offline", raw.offline, "no network: succeed only if everything is there");
  c.bytes("--reserve", raw.reserve, "free space to keep; default 1GiB");
  c.flag("--portable", raw.portable, "refuse names that other systems cannot hold");
  c.flag("--no-space-check", raw.no_space_check, "do not compare with the free space (quota systems)");
  c.duration("--wait", raw.wait_us, "wait for another process in the same folder; default not at all");
  filter_flags(c, raw);
  c.list("--role", raw.roles, "take files of this role: weights, index, config, tokenizer, ... (repeatable)", "ROLE");
  c.rare_group("Transfer");
  c.option("--files", raw.files, "files open at once; default 4", 1, 64);
  c.bytes("--piece", raw.piece, "piece size; default 16MiB, 64MiB for files from 8GiB on");
  c.bytes("--window", raw.window, "how far transfers may run ahead of the hashes; default 4GiB");
  c.bytes("--limit-rate", raw.limit_rate, "bytes per second over all connections");
  c.duration("--stall-time", raw.stall_us, "give up a connection after this long without a byte; default 30s");
  c.choice("--verify-after", raw.verify_after, {"auto", "always", "never"},
           "read finished files back from the device; auto: on network file systems");
  c.flag("--keep-bad", raw.keep_bad, "keep a part whose digest is wrong, as .bad");
  c.flag("--fail-fast", raw.fail_fast, "stop at the first file that fails");
  remote_flags(c, raw);
  c.common(raw.common, cli::kJson | cli::kJobs | cli::kDryRun);
}

void tensors_flags(cli::Command& c, Raw& raw) {
  c.positional("REPO", raw.what, "org/name[@rev], a pin or deployment (.json), or the name of an installed one");
  c.group("Selection");
  c.list("--name", raw.names, "take this tensor (repeatable)", "NAME");
  c.list("--regex", raw.regexes, "take tensors whose name matches anywhere (repeatable)", "RE");
  c.list("--rows", raw.rows, "take rows first:end of a tensor alone (repeatable)", "NAME=A:B");
  c.group("Result");
  c.option("--out", raw.out, "one safetensors file with these tensors", "FILE");
  c.option("--raw", raw.raw_dir, "folder: one raw file a tensor", "DIR");
  c.option("--sparse", raw.sparse_dir, "folder: <shard>.sparse copies with the shard's own header and offsets", "DIR");
  c.flag("--overwrite", raw.overwrite, "replace an existing result of another command");
  c.flag("--allow-open", raw.allow_open, "take what the Hub has now for an open pin");
  c.option("--require-signature", raw.signature_key, "the pin must be signed by this Ed25519 public key (PEM)", "KEY");
  c.flag("--allow-constant", raw.allow_constant, "accept a tensor whose bytes are all equal");
  c.rare_group("Transfer");
  c.bytes("--limit-rate", raw.limit_rate, "bytes per second over all connections");
  c.duration("--stall-time", raw.stall_us, "give up a connection after this long without a byte; default 30s");
  remote_flags(c, raw);
  c.common(raw.common, cli::kJson | cli::kJobs | cli::kDryRun);
}

void pin_flags(cli::Command& c, Raw& raw) {
  c.positional("REPO", raw.what, "org/name[@rev], or the pin or deployment to update");
  c.flag("--update", raw.update, "renew the pin and print what changed");
  c.option("--name", raw.name, "name of a new pin; default the repository's", "NAME");
  filter_flags(c, raw);
  remote_flags(c, raw);
  c.common(raw.common, cli::kDryRun | cli::kOutput);
}

void ls_flags(cli::Command& c, Raw& raw) {
  c.positional("REPO", raw.what, "org/name[@rev]");
  filter_flags(c, raw);
  remote_flags(c, raw);
  c.common(raw.common, cli::kJson);
}

void doctor_flags(cli::Command& c, Raw& raw) {
  c.positional("REPO", raw.what, "org/name[@rev]: also reads one byte of a small and of a large file", false);
  c.option("--local-dir", raw.local_dir, "folder whose disk is looked at; default the present one", "DIR");
  remote_flags(c, raw);
  c.common(raw.common, cli::kJson);
}

Result<std::shared_ptr<hub::Shared>> connect(const Raw& raw) {
  DSF_TRY(hub::Settings s, hub::settings_from(hub::process_environment, {raw.token_file, raw.no_token}));
  s.http.user_agent = cli::tool_id("dsf-fetch");
  if (!raw.cacert.empty()) s.http.ca_bundle = raw.cacert;
  s.http.verify_tls = !raw.insecure;
  if (raw.insecure) cli::log(cli::Level::kWarn, "TLS certificates are not verified");
  s.trusted_hosts = raw.trusted_hosts;
  s.allow_insecure_token = raw.insecure_token;
  s.offline = s.offline || raw.offline;
  if (raw.stall_us > 0) s.stall_timeout_us = raw.stall_us;
  if (raw.limit_rate > 0)
    s.http.pace = std::make_shared<http::Pace>(static_cast<int64_t>(std::min(raw.limit_rate, uint64_t{1} << 50)));
  hub::RetryPolicy policy;
  policy.attempts = static_cast<int>(raw.retries);
  if (const std::string proxy = hub::proxy_for(hub::process_environment, s.endpoint); !proxy.empty())
    cli::log(cli::Level::kInfo, "proxy", {{"host", proxy}});
  auto shared = std::make_shared<hub::Shared>(std::move(s), policy);
  shared->stop = cli::stop_requested;
  return shared;
}

Result<SourceOptions> source_of(const Raw& raw, const hub::Settings& settings) {
  SourceOptions s;
  s.what = find_manifest(raw.what);
  s.paths = raw.paths;
  s.local_dir = raw.local_dir;
  s.revision = raw.revision;
  s.filter = {raw.include, raw.exclude};
  s.allow_open = raw.allow_open;
  s.signature_key = raw.signature_key;
  s.offline = settings.offline;
  for (const std::string& name : raw.roles) {
    const auto role = manifest::role_from(name);
    if (!role) {
      return fail(Code::kUsage, "--role", "'" + manifest::printable(name) + "' is no role",
                  "use weights, index, config, tokenizer, template, code, license, doc or other");
    }
    s.roles.push_back(*role);
  }
  return s;
}

}  // namespace dsf::fetch
