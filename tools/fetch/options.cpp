#include "tools/fetch/options.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>

#include "dsf/base/check.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "tools/fetch/doctor.h"
#include "tools/fetch/get.h"
#include "tools/fetch/pin_command.h"
#include "tools/fetch/raw.h"
#include "tools/fetch/tensors.h"

namespace dsf::fetch {
namespace {

// Retries as events and debug lines.
void report_retries(hub::Shared& shared, Events& events) {
  shared.on_retry = [&events](const hub::RetryEvent& e) {
    events.emit(
        "retry",
        {{"url", e.url}, {"class", e.cls}, {"status", e.status}, {"wait_s", static_cast<double>(e.wait_us) * 1e-6}});
    cli::log(cli::Level::kDebug, "retry",
             {{"url", e.url}, {"class", e.cls}, {"wait_ms", std::to_string(e.wait_us / 1000)}});
  };
}

Result<int> or_summary(Result<int> result, Events& events) {
  if (!result)
    events.emit("summary", {{"result", "failed"},
                            {"class", result.error().cls},
                            {"exit", static_cast<int>(result.error().code)},
                            {"error", result.error().line()}});
  return result;
}

Result<int> get(const Raw& raw) {
  if (raw.local_dir.empty()) return fail(Code::kUsage, "--local-dir", "is missing", "name the folder to fill");
  if (raw.common.jobs > 64) return fail(Code::kUsage, "-j", "more than 64 connections", "give 1 to 64");
  DSF_TRY(const auto shared, connect(raw));
  Events events(raw.common.json);
  report_retries(*shared, events);
  GetOptions o;
  DSF_TRY(static_cast<SourceOptions&>(o), source_of(raw, shared->settings));
  o.engine.connections = raw.connections();
  o.engine.open_files = static_cast<int>(raw.files);
  o.engine.piece_bytes = raw.piece;
  o.engine.window_bytes = raw.window;
  o.engine.keep_bad = raw.keep_bad;
  o.engine.fail_fast = raw.fail_fast;
  o.reserve_bytes = raw.reserve;
  o.wait_us = raw.wait_us;
  o.dry_run = raw.common.dry_run;
  o.overwrite = raw.overwrite;
  o.rehash = raw.force;
  o.space_check = !raw.no_space_check;
  o.quiet = raw.common.quiet;
  o.portable = raw.portable;
  using VerifyAfter = GetOptions::VerifyAfter;
  o.verify_after = raw.verify_after == "always"  ? VerifyAfter::kAlways
                   : raw.verify_after == "never" ? VerifyAfter::kNever
                                                 : VerifyAfter::kAuto;
  return or_summary(run_get(o, shared, events), events);
}

Result<int> tensors(const Raw& raw, const std::shared_ptr<hub::Shared>& shared) {
  Events events(raw.common.json);
  report_retries(*shared, events);
  TensorsOptions o;
  DSF_TRY(static_cast<SourceOptions&>(o), source_of(raw, shared->settings));
  o.selection.names = raw.names;
  o.selection.regexes = raw.regexes;
  for (const std::string& text : raw.rows) {
    DSF_TRY(RowRange rows, parse_rows(text));
    o.selection.rows.push_back(std::move(rows));
  }
  o.out = raw.out;
  o.raw_dir = raw.raw_dir;
  o.sparse_dir = raw.sparse_dir;
  o.connections = raw.connections();
  o.overwrite = raw.overwrite;
  o.allow_constant = raw.allow_constant;
  o.dry_run = raw.common.dry_run;
  o.quiet = raw.common.quiet;
  return or_summary(run_tensors(o, shared, events), events);
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
  std::vector<Handler> handlers;
  const auto add = [&](const char* name, const char* summary, void (*flags)(cli::Command&, Raw&), auto body) {
    cli::Command& c = app.subcommand(name, summary);
    flags(c, raw);
    handlers.push_back({&c, body});
  };
  add("get", "Download and verify; the second run has nothing to do", get_flags, [&] { return get(raw); });
  add("tensors", "Bring single tensors, or rows of them, without the rest of their files", tensors_flags,
      [&] { return online(raw, [&](const auto& shared) { return tensors(raw, shared); }); });
  add("pin", "Write a pin of a repository's files, or --update an existing one", pin_flags, [&] {
    const PinOptions o{find_manifest(raw.what),    raw.common.output, raw.revision,      raw.name,
                       {raw.include, raw.exclude}, raw.update,        raw.common.dry_run};
    return online(raw, [&](const auto& shared) { return run_pin(o, shared); });
  });
  add("ls", "List files with sizes and digests", ls_flags, [&] {
    const LsOptions o{raw.what, raw.revision, {raw.include, raw.exclude}, raw.common.json};
    return online(raw, [&](const auto& shared) { return run_ls(o, shared); });
  });
  add_local_commands(app, raw, handlers);
  add("doctor", "Say what a download from here would meet", doctor_flags, [&] {
    const DoctorOptions o{raw.what, raw.revision, raw.local_dir, raw.common.json};
    return online(raw, [&](const auto& shared) { return run_doctor(o, shared); });
  });
  add(
      "template", "Write the chat template for engines that want one",
      [](cli::Command& c, Raw& r) { c.common(r.common, cli::kOutput); }, [&] { return write_template(raw); });
  app.require_subcommand();
  DSF_TRY(const auto done, app.parse(args));
  if (done) return *done;
  if (raw.common.quiet) {
    cli::set_log_level(cli::Level::kError);
  } else if (raw.common.verbose > 0) {
    cli::set_log_level(cli::Level::kDebug);
  }
  cli::install_stop_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error to report, not a death
  const auto chosen =
      std::find_if(handlers.begin(), handlers.end(), [](const Handler& h) { return h.command->chosen(); });
  DSF_CHECK(chosen != handlers.end(), "a subcommand is required");
  Result<int> result = chosen->run();
  cli::finish_signal();  // after the journal and the record were written: the shell sees the signal's death
  return result;
}

}  // namespace dsf::fetch
