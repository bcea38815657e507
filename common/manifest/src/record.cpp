#include "dsf/manifest/record.h"

#include "dsf/io/file.h"
#include "dsf/manifest/path.h"

namespace dsf::manifest {
namespace {

using json::Cursor;
using json::Value;

constexpr uint64_t kMaxRecordBytes = uint64_t{256} << 20;

Value or_null(const std::string& text) { return text.empty() ? Value() : Value(text); }

Result<FetchedFile> fetched_file(const Cursor& c) {
  FetchedFile f;
  DSF_TRY(f.path, c.string_at("path"));
  if (const std::string why = path_problem(f.path); !why.empty()) return c.fail(why);
  DSF_TRY(const int64_t size, c.integer_at("size", 0));
  f.size = static_cast<uint64_t>(size);
  DSF_TRY(f.sha256, c.string_at("sha256"));
  DSF_TRY(f.git_sha1, c.string_or("git_sha1", ""));
  DSF_TRY(f.verified, c.string_at("verified"));
  DSF_TRY(f.verified_at, c.string_or("verified_at", ""));
  DSF_TRY(f.origin, c.string_or("origin", ""));
  DSF_TRY(f.host, c.string_or("host", ""));
  DSF_TRY(f.seconds, c.number_or("seconds", 0));
  DSF_TRY(f.mtime_ns, c.integer_or("mtime_ns", 0));
  DSF_TRY(const int64_t inode, c.integer_or("inode", 0));
  DSF_TRY(const int64_t dev, c.integer_or("dev", 0));
  f.inode = static_cast<uint64_t>(inode);
  f.dev = static_cast<uint64_t>(dev);
  return f;
}

Value to_value(const FetchedFile& f) {
  Value v = Value::object();
  v.set("path", f.path);
  v.set("size", f.size);
  v.set("sha256", f.sha256);
  if (!f.git_sha1.empty()) v.set("git_sha1", f.git_sha1);
  v.set("verified", f.verified);
  v.set("verified_at", f.verified_at);
  v.set("origin", f.origin);
  if (!f.host.empty()) v.set("host", f.host);
  v.set("seconds", f.seconds);
  v.set("mtime_ns", f.mtime_ns);
  v.set("inode", static_cast<int64_t>(f.inode));
  v.set("dev", static_cast<int64_t>(f.dev));
  return v;
}

}  // namespace

Value to_json(const Record& record) {
  Value out = Value::object();
  out.set("schema", record.schema);
  out.set("version", record.version);
  out.set("created_by", record.created_by);
  Value inputs = Value::array();
  for (const Input& i : record.inputs) {
    Value v = Value::object();
    v.set("path", i.path);
    v.set("sha256", or_null(i.sha256));
    inputs.push(std::move(v));
  }
  out.set("inputs", std::move(inputs));
  out.set("items", record.items);
  for (const auto& [key, value] : record.more) out.set(key, value);
  return out;
}

std::string write(const Record& record) { return json::dump(to_json(record), json::Style::kPretty) + "\n"; }

Result<Record> parse_record(std::string_view text, std::string_view subject, std::string_view schema,
                            int64_t max_version) {
  DSF_TRY(Value value, json::parse(text, subject, {.max_depth = 32}));
  const Cursor root(value, std::string(subject));
  Record record;
  DSF_TRY(record.schema, root.string_at("schema"));
  DSF_TRY(record.version, root.integer_at("version", 1));
  if (record.schema != schema || record.version > max_version) {
    return fail(Code::kContent, std::string(subject),
                "is a \"" + printable(record.schema) + "\" of version " + std::to_string(record.version) +
                    ", wanted \"" + std::string(schema) + "\" up to version " + std::to_string(max_version),
                "use the file that this tool writes, or a newer dsf", "schema");
  }
  DSF_TRY(record.created_by, root.string_at("created_by"));
  DSF_TRY(const Cursor inputs, root.at("inputs"));
  DSF_TRY(const auto input_items, inputs.elements());
  for (const Cursor& c : input_items) {
    Input input;
    DSF_TRY(input.path, c.string_at("path"));
    DSF_TRY(input.sha256, c.string_or("sha256", ""));
    record.inputs.push_back(std::move(input));
  }
  DSF_TRY(const Cursor items, root.at("items"));
  if (!items.value().is_array()) return items.fail("array expected");
  record.items = items.value().as_array();
  for (const auto& [key, member] : value.as_object()) {
    if (key != "schema" && key != "version" && key != "created_by" && key != "inputs" && key != "items")
      record.more.emplace_back(key, member);
  }
  return record;
}

Result<Record> load_record(const std::filesystem::path& path, std::string_view schema, int64_t max_version) {
  DSF_TRY(const std::string text, io::read_text(path, kMaxRecordBytes));
  return parse_record(text, path.string(), schema, max_version);
}

Record to_record(const FetchRecord& r) {
  Record out;
  out.schema = kFetchRecordSchema;
  out.created_by = r.created_by;
  out.inputs = r.inputs;
  for (const FetchedFile& f : r.files) out.items.push_back(to_value(f));
  out.more = {{"pin_name", or_null(r.pin_name)},
              {"pin_sha256", or_null(r.pin_sha256)},
              {"endpoint", r.endpoint},
              {"repo", r.repo},
              {"revision", r.revision},
              {"complete", r.complete},
              {"started", r.started},
              {"finished", r.finished},
              {"tls_verified", r.tls_verified}};
  return out;
}

Result<FetchRecord> fetch_record_from(const Record& record, std::string_view subject) {
  const Value value = to_json(record);
  const Cursor root(value, std::string(subject));
  FetchRecord out;
  out.created_by = record.created_by;
  out.inputs = record.inputs;
  DSF_TRY(out.pin_name, root.string_or("pin_name", ""));
  DSF_TRY(out.pin_sha256, root.string_or("pin_sha256", ""));
  DSF_TRY(out.endpoint, root.string_or("endpoint", ""));
  DSF_TRY(out.repo, root.string_at("repo"));
  DSF_TRY(out.revision, root.string_at("revision"));
  DSF_TRY(out.complete, root.boolean_or("complete", false));
  DSF_TRY(out.started, root.string_or("started", ""));
  DSF_TRY(out.finished, root.string_or("finished", ""));
  DSF_TRY(out.tls_verified, root.boolean_or("tls_verified", true));
  DSF_TRY(const Cursor items, root.at("items"));
  DSF_TRY(const auto files, items.elements());
  for (const Cursor& c : files) {
    DSF_TRY(FetchedFile f, fetched_file(c));
    out.files.push_back(std::move(f));
  }
  return out;
}

Result<FetchRecord> load_fetch_record(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / kFetchRecordPath;
  DSF_TRY(const Record record, load_record(path, kFetchRecordSchema));
  return fetch_record_from(record, path.string());
}

}  // namespace dsf::manifest
