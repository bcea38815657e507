#include <algorithm>

#include "dsf/manifest/pin.h"

namespace dsf::manifest {
namespace {

using json::Value;

Value or_null(const std::string& text) { return text.empty() ? Value() : Value(text); }

void set_unless_empty(Value& object, std::string_view key, const std::string& text) {
  if (!text.empty()) object.set(key, text);
}

Value string_array(const std::vector<std::string>& texts) {
  Value out = Value::array();
  for (const std::string& t : texts) out.push(t);
  return out;
}

Value file_value(const PinFile& f) {
  Value out = Value::object();
  out.set("path", f.path);
  out.set("role", role_name(f.role));
  out.set("sha256", or_null(f.sha256));
  out.set("size", f.size ? Value(*f.size) : Value());
  set_unless_empty(out, "git_sha1", f.git_sha1);
  set_unless_empty(out, "pointer_git_sha1", f.pointer_git_sha1);
  set_unless_empty(out, "xet_hash", f.xet_hash);
  if (f.lfs) out.set("lfs", true);
  if (f.safetensors) {
    Value facts = Value::object();
    facts.set("header_bytes", f.safetensors->header_bytes);
    facts.set("header_sha256", f.safetensors->header_sha256);
    facts.set("tensors", f.safetensors->tensors);
    out.set("safetensors", std::move(facts));
  }
  if (f.pieces) {
    Value pieces = Value::object();
    pieces.set("size", f.pieces->size);
    pieces.set("sha256", f.pieces->sha256);
    out.set("pieces", std::move(pieces));
  }
  if (!f.tensors.empty()) {
    Value tensors = Value::array();
    for (const PinnedTensor& t : f.tensors) {
      Value v = Value::object();
      v.set("name", t.name);
      v.set("dtype", t.dtype);
      Value shape = Value::array();
      for (const int64_t n : t.shape) shape.push(n);
      v.set("shape", std::move(shape));
      v.set("offsets", json::Array{Value(t.begin), Value(t.end)});
      v.set("sha256", t.sha256);
      tensors.push(std::move(v));
    }
    out.set("tensors", std::move(tensors));
  }
  return out;
}

Value source_value(const PinSource& s) {
  Value out = Value::object();
  out.set("endpoint", s.endpoint);
  out.set("repo", s.repo);
  out.set("repo_type", s.repo_type);
  out.set("requested_revision", s.requested_revision);
  out.set("revision", or_null(s.revision));
  set_unless_empty(out, "license", s.license);
  return out;
}

void append(std::string& out, const Value& value, size_t indent) {
  const std::string inner(indent + 2, ' ');
  const std::string outer(indent, ' ');
  if (value.is_array() && !value.as_array().empty()) {
    out += "[\n";
    const char* separator = "";
    for (const Value& v : value.as_array()) {
      out += separator + inner;
      append(out, v, indent + 2);
      separator = ",\n";
    }
    out += "\n" + outer + "]";
  } else if (value.is_object() && !value.as_object().empty()) {
    std::vector<const json::Member*> members;
    for (const json::Member& m : value.as_object()) members.push_back(&m);
    std::sort(members.begin(), members.end(),
              [](const json::Member* a, const json::Member* b) { return a->first < b->first; });
    out += "{\n";
    const char* separator = "";
    for (const json::Member* m : members) {
      out += separator + inner + json::quote(m->first) + ": ";
      append(out, m->second, indent + 2);
      separator = ",\n";
    }
    out += "\n" + outer + "}";
  } else {
    out += json::dump(value);
  }
}

}  // namespace

std::string canonical_json(const Value& value) {
  std::string out;
  append(out, value, 0);
  return out + "\n";
}

std::string write(const Pin& pin) {
  Value out = Value::object();
  out.set("schema", "hub-pin");
  out.set("version", 1);
  out.set("name", pin.name);
  out.set("complete", pin.complete);
  out.set("source", source_value(pin.source));
  if (!pin.select.include.empty() || !pin.select.exclude.empty()) {
    Value select = Value::object();
    if (!pin.select.include.empty()) select.set("include", string_array(pin.select.include));
    if (!pin.select.exclude.empty()) select.set("exclude", string_array(pin.select.exclude));
    out.set("select", std::move(select));
  }
  if (!pin.expect.empty()) {
    Value expect = Value::array();
    for (const Expectation& e : pin.expect) {
      Value v = Value::object();
      v.set("glob", e.glob);
      v.set("count", e.count);
      expect.push(std::move(v));
    }
    out.set("expect", std::move(expect));
  }
  Value files = Value::array();
  for (const PinFile& f : pin.files) files.push(file_value(f));
  out.set("files", std::move(files));
  Value totals = Value::object();
  totals.set("bytes", pin.total_bytes());
  totals.set("files", pin.files.size());
  out.set("totals", std::move(totals));
  for (const auto& [key, value] : pin.extra) out.set(key, value);
  return canonical_json(out);
}

Result<void> check_canonical(std::string_view text, std::string_view subject) {
  DSF_TRY(const Pin pin, parse_pin(text, subject));
  const std::string want = write(pin);
  if (want == text) return {};
  const auto [a, b] = std::mismatch(want.begin(), want.end(), text.begin(), text.end());
  const auto line = 1 + std::count(want.begin(), a, '\n');
  return fail(Code::kContent, std::string(subject), "not in canonical form from line " + std::to_string(line) + " on",
              "rewrite it with dsf-fetch pin", "not_canonical");
}

}  // namespace dsf::manifest
