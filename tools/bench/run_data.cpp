#include "tools/bench/run_data.h"

#include <algorithm>
#include <array>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "tools/bench/fields.h"
#include "tools/bench/raw_file.h"
#include "tools/bench/scrape.h"

namespace dsf::bench {
namespace {

using json::Cursor;
using json::Value;

constexpr std::array<Field<LevelRecord>, 6> kPlace = {{{"phase", &LevelRecord::phase},
                                                       {"thinking", &LevelRecord::thinking},
                                                       {"repeat", &LevelRecord::repeat},
                                                       {"c", &LevelRecord::c},
                                                       {"attempt", &LevelRecord::attempt, true},
                                                       {"warmup", &LevelRecord::warmup}}};
constexpr std::array<Field<LevelRecord>, 6> kMeasured = {{{"ok", &LevelRecord::ok},
                                                          {"failed", &LevelRecord::failed},
                                                          {"spread_ns", &LevelRecord::spread_ns},
                                                          {"client_cpu_ns", &LevelRecord::cpu_ns},
                                                          {"wall_ns", &LevelRecord::wall_ns},
                                                          {"lag_max_ns", &LevelRecord::lag_max_ns}}};

Value place(std::string_view type, const LevelRecord& level) {
  Value out = json::Object{{"type", type}};
  write_fields(out, level, kPlace);
  return out;
}

Result<LevelRecord> read_place(const Cursor& at) {
  LevelRecord out;
  DSF_OK(read_fields(at, out, kPlace));
  return out;
}

Result<void> read_scrape(const Cursor& at, std::map<std::string, double>& out) {
  DSF_TRY(const Cursor samples, at.at("samples"));
  if (!samples.value().is_object()) return samples.fail("an object expected");
  for (const auto& [name, value] : samples.value().as_object()) out[name] = value.to_double().value_or(0);
  return {};
}

// The level that a record belongs to; made on first sight.
LevelRecord& level_of(std::vector<LevelRecord>& levels, const LevelRecord& key) {
  const auto it = std::find_if(levels.begin(), levels.end(), [&](const LevelRecord& l) {
    return l.phase == key.phase && l.thinking == key.thinking && l.repeat == key.repeat && l.c == key.c;
  });
  return it != levels.end() ? *it : levels.emplace_back(key);
}

Result<void> take_record(const Value& record, const std::string& subject, RunData& out) {
  const Cursor at(record, subject);
  DSF_TRY(const std::string type, at.string_at("type"));
  if (type == "meta") {
    DSF_TRY(const std::string schema, at.string_at("schema"));
    if (schema != kRawSchema) return fail(Code::kContent, subject, "schema is '" + schema + "', this tool reads " + std::string(kRawSchema));
  } else if (type == "request") {
    DSF_TRY(Request r, request_from_json(record, subject));
    if (!r.warmup) out.requests.push_back(std::move(r));
  } else if (type == "level_end" || type == "scrape") {
    DSF_TRY(const LevelRecord key, read_place(at));
    if (key.warmup) return {};
    LevelRecord& level = level_of(out.levels, key);
    level.attempt = std::max(level.attempt, key.attempt);
    if (type == "level_end") return read_fields(at, level, kMeasured);
    DSF_TRY(const std::string when, at.string_at("when"));
    return read_scrape(at, when == "before" ? level.before : level.after);
  } else if (type == "token_check") {
    DSF_TRY(const LevelRecord key, read_place(at));
    TokenCheck check{key.phase, key.thinking, key.repeat, {}, {}};
    DSF_TRY(check.result, at.string_at("result"));
    DSF_TRY(check.detail, at.string_or("detail", ""));
    out.token_checks.push_back(std::move(check));
  } else if (type == "end") {
    DSF_TRY(out.state, at.string_at("state"));
  }
  return {};
}

}  // namespace

Value to_json(const LevelRecord& level) {
  Value out = place("level_end", level);
  write_fields(out, level, kMeasured);
  return out;
}

Value scrape_json(const LevelRecord& level, bool after) {
  Value out = place("scrape", level);
  out.set("when", after ? "after" : "before");
  Value samples = Value::object();
  for (const auto& [name, value] : after ? level.after : level.before) samples.set(name, value);
  out.set("samples", std::move(samples));
  return out;
}

Value to_json(const TokenCheck& check) {
  LevelRecord key;
  key.phase = check.phase;
  key.thinking = check.thinking;
  key.repeat = check.repeat;
  Value out = place("token_check", key);
  out.set("result", check.result);
  out.set("detail", check.detail);
  return out;
}

Result<RunData> load_run(const std::filesystem::path& dir) {
  RunData out;
  out.dir = dir;
  const auto run_path = dir / "run.json", raw_path = dir / "raw.jsonl.zst";
  DSF_TRY(const std::string text, io::read_text(run_path, uint64_t{64} << 20));
  out.run_sha256 = codec::sha256(text).hex();
  DSF_TRY(out.run, json::parse(text, run_path.string()));
  const Cursor at(out.run, run_path.string());
  DSF_TRY(const std::string schema, at.string_at("schema"));
  if (schema != kRunSchema) return fail(Code::kContent, run_path.string(), "schema is '" + schema + "', this tool reads " + std::string(kRunSchema));
  DSF_TRY(const codec::Digest digest, codec::sha256_file(raw_path));
  out.raw_sha256 = digest.hex();
  DSF_TRY(const RawFile raw, read_raw(raw_path));
  for (size_t i = 0; i < raw.records.size(); ++i) {
    DSF_OK(take_record(raw.records[i], raw_path.string() + ":" + std::to_string(i + 1), out));
  }
  if (out.state.empty()) out.state = "killed";
  std::erase_if(out.requests, [&](const Request& r) {
    return std::any_of(out.levels.begin(), out.levels.end(), [&](const LevelRecord& l) {
      return l.phase == r.phase && l.thinking == r.thinking && l.repeat == r.repeat && l.c == r.c && l.attempt > r.attempt;
    });
  });
  return out;
}

void collect_digests(const Value& value, const std::string& prefix, std::map<std::string, std::string>& out) {
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.as_object()) {
    const bool digest = key.find("sha256") != std::string::npos || key.find("digest") != std::string::npos;
    if (digest && member.is_string()) out[prefix + key] = member.as_string();
    if (member.is_object()) collect_digests(member, prefix + key + ".", out);
  }
}

std::map<std::string, std::string> weight_digests(const Value& run) {
  std::map<std::string, std::string> out;
  const Value* server = run.find("server");
  const Value* identity = server == nullptr ? nullptr : server->find("identity");
  if (identity != nullptr) collect_digests(*identity, "", out);
  // The program that serves may differ between compared engines; what it serves may not.
  std::erase_if(out, [](const auto& item) { return item.first.find("binary") != std::string::npos || item.first.find("build") != std::string::npos; });
  return out;
}

}  // namespace dsf::bench
