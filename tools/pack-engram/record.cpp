#include "tools/pack-engram/record.h"

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/version.h"

namespace dsf::pack_engram {
namespace {

json::Value item_of(const Outcome& o) {
  const engram::PackedHeader& h = o.file.header;
  json::Value v = json::Value::object();
  v.set("file", o.file.path.filename().string());
  v.set("status", o.status);
  if (!o.what.empty()) v.set("what", o.what);
  v.set("layer", h.layer_id);
  v.set("rank", o.file.rank);
  return v;
}

void add_numbers(json::Value& v, const Outcome& o) {
  const engram::PackedHeader& h = o.file.header;
  engram::RecordedPack pack{o.file.path.filename().string(), h, kBlockRows, {}};
  if (o.good() && o.block_sha256.size() == ceil_div(h.hi - h.lo, kBlockRows)) pack.block_sha256 = o.block_sha256;
  v.set("bytes", h.file_bytes());
  v.set("seconds", o.seconds);
  if (o.rows_resumed > 0) v.set("rows_resumed", o.rows_resumed);
  if (o.rows_compared > 0) v.set("rows_compared", o.rows_compared);
  if (o.rows_differing > 0) v.set("rows_differing", o.rows_differing);
  if (o.status == "content") v.set("first_bad_row", o.first_bad_row);
  engram::add_digests(v, pack);
}

// Digests that dsf-fetch has noted for the shards; without its record a shard counts as not hashed (dsf-verify does
// that).
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
    case Mode::kPack:
      return "pack";
    case Mode::kCheckSource:
      return "check";
    case Mode::kCheckDigests:
      return "check-digests";
    case Mode::kRecombine:
      return "recombine";
    case Mode::kList:
      return "list";
  }
  return "";
}

}  // namespace

manifest::Record make_record(const Plan& plan, const Source* source, const std::vector<Outcome>& outcomes,
                             const std::vector<Error>& errors) {
  manifest::Record r;
  r.schema = engram::kPackRecordSchema;
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
  for (const Error& e : errors)
    list.push_back(json::Object{{"class", e.cls}, {"exit", static_cast<int>(e.code)}, {"text", e.line()}});
  r.more.emplace_back("errors", std::move(list));
  return r;
}

manifest::Record make_record(const Plan& plan, const std::vector<LayerDigest>& digests) {
  manifest::Record r;
  r.schema = engram::kPackRecordSchema;
  r.created_by = cli::tool_id("dsf-pack-engram");
  for (const LayerDigest& d : digests) {
    json::Value v = json::Object{
        {"layer", d.layer}, {"rows", d.rows}, {"table_sha256", d.sha256}, {"status", d.good() ? "ok" : "content"}};
    if (!d.expected.empty()) {
      v.set("expected_sha256", d.expected);
      v.set("expected_from", d.source);
    }
    r.items.push_back(std::move(v));
  }
  r.more.emplace_back("mode", mode_name(plan.mode));
  r.more.emplace_back("finished", now_rfc3339());
  r.more.emplace_back("world_size", plan.world);
  return r;
}

}  // namespace dsf::pack_engram
