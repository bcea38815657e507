#include "tools/preflight/run.h"

#include <algorithm>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "tools/preflight/report.h"

namespace dsf::preflight {
namespace {

bool wanted(const Plan& plan, std::string_view id) {
  const auto in = [&](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  return (plan.only.empty() || in(plan.only)) && !in(plan.skip);
}

// Opening configuration and shards is what the other checks stand on: with --only they still run, but only speak up
// when they fail.
bool foundation(std::string_view id) { return id == "config.valid" || id == "shards.open"; }

// Which programs this node would run: two nodes must run the same ones.
void note_binaries(Context& c) {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (ec) return;
  const auto serve = self.parent_path() / "dsf-serve";
  if (const auto digest = codec::sha256_file(self)) c.facts["binary_" + self.filename().string()] = digest->hex();
  if (!std::filesystem::exists(serve, ec)) return;
  if (const auto digest = codec::sha256_file(serve)) c.facts["binary_dsf-serve"] = digest->hex();
}

}  // namespace

Result<int> run(const Plan& plan, std::ostream& out, std::ostream& err) {
  std::error_code ec;
  if (!std::filesystem::is_directory(plan.model, ec))
    return fail(Code::kMissing, plan.model.string(), "no such folder", "pass the checkpoint folder as --model",
                "missing");
  Context context(plan);
  if (plan.json || !plan.report.empty()) note_binaries(context);
  std::vector<Outcome> outcomes;
  for (const Check& check : all_checks()) {
    const bool asked = wanted(plan, check.id);
    if (!asked && !foundation(check.id)) continue;
    Outcome o{.id = std::string(check.id), .status = Status::kOk, .summary = {}, .findings = {}, .more = 0};
    check.run(context, o);
    if (asked || o.status == Status::kFail) outcomes.push_back(std::move(o));
  }
  print(context, outcomes, out, err);
  if (!plan.report.empty()) DSF_OK(io::write_file_atomic(plan.report, manifest::write(to_record(context, outcomes))));
  const auto any = [&](Status s) {
    return std::any_of(outcomes.begin(), outcomes.end(), [&](const Outcome& o) { return o.status == s; });
  };
  if (any(Status::kFail)) return static_cast<int>(Code::kNo);
  if (any(Status::kWarning) && plan.warnings_as_errors) return static_cast<int>(Code::kWarnings);
  return static_cast<int>(Code::kOk);
}

}  // namespace dsf::preflight
