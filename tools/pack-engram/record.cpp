#include "tools/pack-engram/record.h"

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::pack_engram {
namespace {

json::Value item_of(const Outcome& o) {
  const engram::PackedHeader& h = o.file.header;
  json::Value v = json::Value::object();
  v.set("file", o.file.path.filename().string());
  v.set("status", o.status);
  if (!o.what.empty()) v.set("what", o.what);
  v.set("layer", h.layer_id).set("rank", o.file.rank);
  return v;
}

void add_numbers(json::Value& v, const Outcome& o) {
  const engram::PackedHeader& h = o.file.header;
  v.set("lo", h.lo);
  v.set("hi", h.hi);
  v.set("total_rows", h.total_rows);
  v.set("row_bytes", h.row_bytes);
  v.set("bytes", h.file_bytes());
  v.set("seconds", o.seconds);
  if (o.rows_compared > 0) v.set("rows_compared", o.rows_compared);
  if (o.rows_differing > 0) v.set("rows_differing", o.rows_differing);
  if (o.status == "content") v.set("first_bad_row", o.first_bad_row);
  const uint64_t blocks = ceil_div(h.hi - h.lo, kBlockRows);
  if (o.good() && o.block_sha256.size() == blocks) {
    v.set("tree_sha256", tree_sha256(h, o.block_sha256));
    v.set("block_rows", kBlockRows);
    v.set("block_sha256", json::Array(o.block_sha256.begin(), o.block_sha256.end()));
  }
}

// Digests that dsf-fetch has noted for the shards; without its record a shard counts as not hashed (dsf-verify does that).
std::vector<manifest::Input> inputs_of(const Plan& plan, const Source& source) {
  std::vector<manifest::Input> out{{plan.config.filename().string(), source.config_sha256}};
  if (!source.index_sha256.empty()) out.push_back({"model.safetensors.index.json", source.index_sha256});
  const auto fetched = manifest::load_fetch_record(plan.source);
  for (const auto& path : source.rows->files()) {
    manifest::Input input{path.filename().string(), ""};
    if (fetched)
      for (const auto& f : fetched->files)
        if (f.path == input.path) input.sha256 = f.sha256;
    out.push_back(std::move(input));
  }
  return out;
}

const char* mode_name(Mode mode) {
  switch (mode) {
    case Mode::kPack: return "pack";
    case Mode::kCheckSource: return "check";
    case Mode::kCheckDigests: return "check-digests";
    case Mode::kList: return "list";
  }
  return "";
}

}  // namespace

std::string record_name(int rank, int world) { return "engram-r" + std::to_string(rank) + "of" + std::to_string(world) + ".json"; }

manifest::Record make_record(const Plan& plan, const Source* source, const std::vector<Outcome>& outcomes, const std::vector<Error>& errors) {
  manifest::Record r;
  r.schema = kRecordSchema;
  r.created_by = cli::tool_id("dsf-pack-engram");
  if (source != nullptr) r.inputs = inputs_of(plan, *source);
  for (const Outcome& o : outcomes) {
    json::Value v = item_of(o);
    add_numbers(v, o);
    r.items.push_back(std::move(v));
  }
  r.more.emplace_back("mode", mode_name(plan.mode));
  r.more.emplace_back("finished", now_rfc3339());
  r.more.emplace_back("world_size", plan.world);
  if (plan.sample_rows > 0) {
    r.more.emplace_back("sample_rows", plan.sample_rows);
    r.more.emplace_back("seed", plan.seed);
  }
  if (source != nullptr) {
    const auto fetched = manifest::load_fetch_record(plan.source);
    if (fetched) r.more.emplace_back("source", json::Object{{"repo", fetched->repo}, {"revision", fetched->revision}});
  }
  json::Array list;
  for (const Error& e : errors) list.push_back(json::Object{{"class", e.cls}, {"exit", static_cast<int>(e.code)}, {"text", e.line()}});
  r.more.emplace_back("errors", std::move(list));
  return r;
}

Result<std::vector<RecordedFile>> load_recorded(const Plan& plan, int rank) {
  const auto path = plan.packs / record_name(rank, plan.world);
  auto record = manifest::load_record(path, kRecordSchema);
  if (!record) {
    Error e = std::move(record).error();
    if (e.code == Code::kMissing) e.fix = "give --source to compare with the tables themselves";
    return fail(std::move(e));
  }
  std::vector<RecordedFile> out;
  for (const json::Value& item : record->items) {
    const json::Cursor c(item, path.string());
    RecordedFile f;
    DSF_TRY(const std::string name, c.string_at("file"));
    f.file.rank = rank;
    f.file.path = plan.packs / name;
    const auto number = [&](const char* key) -> Result<uint64_t> {
      DSF_TRY(const int64_t v, c.integer_at(key, 0));
      return static_cast<uint64_t>(v);
    };
    DSF_TRY(f.file.header.layer_id, number("layer"));
    DSF_TRY(f.file.header.lo, number("lo"));
    DSF_TRY(f.file.header.hi, number("hi"));
    DSF_TRY(f.file.header.total_rows, number("total_rows"));
    DSF_TRY(f.file.header.row_bytes, number("row_bytes"));
    DSF_TRY(f.block_rows, number("block_rows"));
    DSF_TRY(const json::Cursor blocks, c.at("block_sha256"));
    DSF_TRY(const auto elements, blocks.elements());
    for (const json::Cursor& e : elements) {
      DSF_TRY(std::string digest, e.string());
      f.block_sha256.push_back(std::move(digest));
    }
    const uint64_t rows = f.file.header.hi - f.file.header.lo;
    if (name != engram::packed_file_name(static_cast<int64_t>(f.file.header.layer_id), rank, plan.world) || f.file.header.hi < f.file.header.lo || f.block_rows == 0 ||
        f.block_rows > (uint64_t{1} << 24) || f.file.header.row_bytes > (uint64_t{1} << 20) || f.block_sha256.size() != ceil_div(rows, f.block_rows))
      return c.fail("file name, rows and block digests do not fit together", "pack again, or give --source");
    out.push_back(std::move(f));
  }
  if (out.empty()) return fail(Code::kContent, path.string(), "describes no files", "pack again, or give --source", "record");
  return out;
}

}  // namespace dsf::pack_engram
