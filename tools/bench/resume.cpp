#include "tools/bench/resume.h"

#include "dsf/io/file.h"
#include "tools/bench/raw_file.h"
#include "tools/bench/run_json.h"

namespace dsf::bench {
namespace {

using json::Value;

std::string text_at(const Value& object, std::string_view key) {
  const Value* v = object.find(key);
  return v != nullptr && v->is_string() ? v->as_string() : std::string();
}

int64_t number_at(const Value& object, std::string_view key) {
  const Value* v = object.find(key);
  return v == nullptr ? 0 : v->to_i64().value_or(0);
}

bool true_at(const Value& object, std::string_view key) {
  const Value* v = object.find(key);
  return v != nullptr && v->is_bool() && v->as_bool();
}

std::string level_of(const Value& record) {
  return level_name(text_at(record, "phase"), text_at(record, "thinking"), number_at(record, "repeat"), number_at(record, "c")) +
         (true_at(record, "warmup") ? "/warmup" : "") + "/a" + std::to_string(number_at(record, "attempt"));
}

// Only another way to the same run may be resumed: everything that a comparison would look at.
Result<void> check_same(const Value& run, const Plan& plan, const std::string& subject) {
  const auto differs = [&](const std::string& what) {
    return fail(Code::kUsage, subject, "the interrupted run had another " + what, "resume with the same options, or choose a new --out", "arguments");
  };
  if (text_at(run, "label") != plan.target.label) return differs("label");
  if (text_at(run, "model") != plan.target.model) return differs("model");
  const Value* passes = run.find("passes");
  if (passes == nullptr || json::dump(sorted(*passes)) != json::dump(sorted(passes_json(plan)))) return differs("set of passes or settings");
  return {};
}

}  // namespace

std::string level_name(std::string_view phase, std::string_view thinking, int64_t repeat, int64_t c) {
  return std::string(phase) + "/" + std::string(thinking) + "/r" + std::to_string(repeat) + "/c" + std::to_string(c);
}

std::map<std::pair<int64_t, int64_t>, int64_t> PartialRun::prompt_tokens(const std::string& pass) const {
  std::map<std::pair<int64_t, int64_t>, int64_t> out;
  for (const auto& r : records) {
    if (text_at(r, "type") != "request" || true_at(r, "warmup") || level_name(text_at(r, "phase"), text_at(r, "thinking"), number_at(r, "repeat"), 0) != pass) continue;
    const Value* counts = r.find("counts");
    if (counts != nullptr && text_at(r, "status") == "ok") out[{number_at(r, "c"), number_at(r, "slot")}] = number_at(*counts, "prompt");
  }
  return out;
}

Result<PartialRun> read_partial(const std::filesystem::path& dir, const Plan& plan) {
  PartialRun out;
  const std::string subject = (dir / "run.json").string();
  if (!plan.rate.kind.empty() || plan.turns > 0) return fail(Code::kUsage, "--resume", "only the matrix can be resumed", "run it again into a new --out", "arguments");
  DSF_TRY(const std::string text, io::read_text(dir / "run.json", uint64_t{64} << 20));
  DSF_TRY(out.run, json::parse(text, subject));
  DSF_OK(check_same(out.run, plan, subject));
  DSF_TRY(const RawFile raw, read_raw(dir / "raw.jsonl.zst"));

  std::set<std::string> ended, broken;
  for (const auto& r : raw.records) {
    if (text_at(r, "type") == "level_end") ended.insert(level_of(r));
    if (text_at(r, "type") == "request" && text_at(r, "status") == "aborted") broken.insert(level_of(r));
    if (text_at(r, "type") == "end") out.complete = text_at(r, "state") == "complete";
  }
  for (const auto& r : raw.records) {
    const std::string type = text_at(r, "type");
    if (type == "end") continue;
    const bool whole = type == "meta" || type == "probe" || type == "token_check";
    const std::string level = level_of(r);
    if (!whole && (!ended.contains(level) || broken.contains(level))) continue;
    out.records.push_back(r);
    const std::string name = level_name(text_at(r, "phase"), text_at(r, "thinking"), number_at(r, "repeat"), number_at(r, "c"));
    if (type == "token_check") out.checks.insert(level_name(text_at(r, "phase"), text_at(r, "thinking"), number_at(r, "repeat"), 0));
    if (true_at(r, "warmup")) continue;
    if (type == "level_end") out.levels.insert(name);
    if (type != "request" || number_at(r, "attempt") != 0) continue;
    ++out.requests;
    out.ok += text_at(r, "status") == "ok" ? 1 : 0;
  }
  return out;
}

}  // namespace dsf::bench
