#include "tools/fetch/options.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/cli/version.h"
#include "dsf/io/file.h"
#include "tools/fetch/get.h"
#include "tools/fetch/pin_command.h"

namespace dsf::fetch {
namespace {

// Text as given; turned into plans below.
struct Raw {
  cli::CommonFlags common;
  std::string what, revision, local_dir, token_file, cacert, name;
  std::vector<std::string> paths, include, exclude, trusted_hosts;
  int64_t files = 4, retries = 10, wait_us = 0, stall_us = 0;
  uint64_t piece = 0, window = 4ull << 30, reserve = 1ull << 30, limit_rate = 0;
  bool no_token = false, offline = false, overwrite = false, allow_open = false, force = false, keep_bad = false,
       fail_fast = false;
  bool no_space_check = false, update = false, insecure = false, insecure_token = false;
};

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

void get_flags(cli::Command& c, Raw& raw) {
  c.positional("REPO", raw.what, "org/name[@rev], a pin or deployment (.json), or the name of an installed one");
  c.positionals("FILE", raw.paths, "only these files");
  c.group("Target");
  c.option("--local-dir", raw.local_dir, "folder to fill", "DIR");
  c.flag("--overwrite", raw.overwrite, "put other content under wanted names aside instead of stopping");
  c.flag("--allow-open", raw.allow_open, "take what the Hub has now for an open pin");
  c.flag("--force", raw.force, "hash existing files again, whatever the last record says");
  c.flag("--offline", raw.offline, "no network: succeed only if everything is there");
  c.bytes("--reserve", raw.reserve, "free space to keep; default 1GiB");
  c.flag("--no-space-check", raw.no_space_check, "do not compare with the free space (quota systems)");
  c.duration("--wait", raw.wait_us, "wait for another process in the same folder; default not at all");
  filter_flags(c, raw);
  c.group("Transfer");
  c.option("--files", raw.files, "files open at once; default 4", 1, 64);
  c.bytes("--piece", raw.piece, "piece size; default 16MiB, 64MiB for files from 8GiB on");
  c.bytes("--window", raw.window, "how far transfers may run ahead of the hashes; default 4GiB");
  c.bytes("--limit-rate", raw.limit_rate, "bytes per second over all connections");
  c.duration("--stall-time", raw.stall_us, "give up a connection after this long without a byte; default 30s");
  c.flag("--keep-bad", raw.keep_bad, "keep a part whose digest is wrong, as .bad");
  c.flag("--fail-fast", raw.fail_fast, "stop at the first file that fails");
  remote_flags(c, raw);
  c.common(raw.common, cli::kJson | cli::kJobs | cli::kDryRun);
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
  const int connections = raw.common.jobs > 0 ? raw.common.jobs : 16;
  if (raw.limit_rate > 0)
    s.http.max_recv_bytes_per_s =
        static_cast<int64_t>(std::max<uint64_t>(1024, raw.limit_rate / static_cast<uint64_t>(connections)));
  hub::RetryPolicy policy;
  policy.attempts = static_cast<int>(raw.retries);
  auto shared = std::make_shared<hub::Shared>(std::move(s), policy);
  shared->stop = cli::stop_requested;
  return shared;
}

Result<int> get(const Raw& raw) {
  if (raw.local_dir.empty()) return fail(Code::kUsage, "--local-dir", "is missing", "name the folder to fill");
  if (raw.common.jobs > 64) return fail(Code::kUsage, "-j", "more than 64 connections", "give 1 to 64");
  DSF_TRY(const auto shared, connect(raw));
  Events events(raw.common.json);
  shared->on_retry = [&](const hub::RetryEvent& e) {
    events.emit(
        "retry",
        {{"url", e.url}, {"class", e.cls}, {"status", e.status}, {"wait_s", static_cast<double>(e.wait_us) * 1e-6}});
    cli::log(cli::Level::kDebug, "retry",
             {{"url", e.url}, {"class", e.cls}, {"wait_ms", std::to_string(e.wait_us / 1000)}});
  };
  GetOptions o;
  o.what = find_manifest(raw.what);
  o.paths = raw.paths;
  o.local_dir = raw.local_dir;
  o.revision = raw.revision;
  o.filter = {raw.include, raw.exclude};
  o.engine.connections = raw.common.jobs > 0 ? raw.common.jobs : 16;
  o.engine.open_files = static_cast<int>(raw.files);
  o.engine.piece_bytes = raw.piece;
  o.engine.window_bytes = raw.window;
  o.engine.keep_bad = raw.keep_bad;
  o.engine.fail_fast = raw.fail_fast;
  o.reserve_bytes = raw.reserve;
  o.wait_us = raw.wait_us;
  o.dry_run = raw.common.dry_run;
  o.overwrite = raw.overwrite;
  o.allow_open = raw.allow_open;
  o.offline = shared->settings.offline;
  o.rehash = raw.force;
  o.space_check = !raw.no_space_check;
  o.quiet = raw.common.quiet;
  auto result = run_get(o, shared, events);
  if (!result)
    events.emit("summary", {{"result", "failed"},
                            {"class", result.error().cls},
                            {"exit", static_cast<int>(result.error().code)},
                            {"error", result.error().line()}});
  return result;
}

Result<int> write_template(const Raw& raw) {
  DSF_TRY(const auto path, find_shared("manifests/templates/deepseek-v4.1-chat.jinja"));
  DSF_TRY(const std::string text, io::read_text(path, 1 << 20));
  if (!raw.common.output.empty() && raw.common.output != "-") {
    DSF_OK(io::write_file_atomic(raw.common.output, text));
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return 0;
}

Result<int> online(const Raw& raw, const std::function<Result<int>(const std::shared_ptr<hub::Shared>&)>& body) {
  DSF_TRY(const auto shared, connect(raw));
  if (shared->settings.offline)
    return fail(Code::kOffline, raw.what, "needs the Hub, and the run is offline", "unset HF_HUB_OFFLINE", "offline");
  return body(shared);
}

}  // namespace

Result<int> run(cli::Args args) {
  cli::App app({"dsf-fetch",
                "Downloads a model repository, or what a manifest pins, verified byte by byte and resumable.",
                {{"dsf-fetch get deepseek-v4.1-flash-1017 --local-dir models",
                  "both pins of the deployment, each in its subfolder"},
                 {"dsf-fetch get org/name --local-dir m --include '*.json'", "some files of a repository"},
                 {"dsf-fetch pin manifests/x.json --update", "fill or renew a pin from the Hub, with a diff"}}});
  Raw raw;
  cli::Command& get_command = app.subcommand("get", "Download and verify; the second run has nothing to do");
  get_flags(get_command, raw);
  cli::Command& pin_command = app.subcommand("pin", "Write a pin of a repository's files, or --update an existing one");
  pin_command.positional("REPO", raw.what, "org/name[@rev], or the pin or deployment to update");
  pin_command.flag("--update", raw.update, "renew the pin and print what changed");
  pin_command.option("--name", raw.name, "name of a new pin; default the repository's", "NAME");
  filter_flags(pin_command, raw);
  remote_flags(pin_command, raw);
  pin_command.common(raw.common, cli::kDryRun | cli::kOutput);
  cli::Command& ls_command = app.subcommand("ls", "List files with sizes and digests");
  ls_command.positional("REPO", raw.what, "org/name[@rev]");
  filter_flags(ls_command, raw);
  remote_flags(ls_command, raw);
  ls_command.common(raw.common, cli::kJson);
  cli::Command& template_command = app.subcommand("template", "Write the chat template for engines that want one");
  template_command.common(raw.common, cli::kOutput);
  app.require_subcommand();
  DSF_TRY(const auto done, app.parse(args));
  if (done) return *done;
  cli::install_stop_signals();
  const manifest::Filter filter{raw.include, raw.exclude};
  Result<int> result = 0;
  if (get_command.chosen()) {
    result = get(raw);
  } else if (pin_command.chosen()) {
    const PinOptions o{find_manifest(raw.what), raw.common.output, raw.revision, raw.name, filter, raw.update,
                       raw.common.dry_run};
    result = online(raw, [&](const auto& shared) { return run_pin(o, shared); });
  } else if (ls_command.chosen()) {
    const LsOptions o{raw.what, raw.revision, filter, raw.common.json};
    result = online(raw, [&](const auto& shared) { return run_ls(o, shared); });
  } else {
    result = write_template(raw);
  }
  cli::finish_signal();  // after the journal and the record were written: the shell sees the signal's death
  return result;
}

}  // namespace dsf::fetch
