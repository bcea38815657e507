#include <algorithm>
#include <set>

#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"

namespace dsf::manifest {
namespace {

using json::Cursor;

constexpr uint64_t kMaxSize = (uint64_t{1} << 53) - 1;
constexpr int64_t kVersion = 1;

bool is_hex(std::string_view s, size_t digits) {
  return s.size() == digits && s.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Typo protection: a pin has no member that this version does not know.
Result<void> only(const Cursor& c, const std::set<std::string_view>& allowed, bool free_x = false) {
  if (!c.value().is_object()) return c.fail("object expected, got " + std::string(c.value().type_name()));
  for (const auto& [key, value] : c.value().as_object()) {
    if (!allowed.contains(key) && !(free_x && key.starts_with("x_")))
      return c.fail("unknown member \"" + printable(key) + "\"");
  }
  return {};
}

// Hex digits, or empty when absent or null.
Result<std::string> hex_or_open(const Cursor& parent, std::string_view key, size_t digits) {
  const auto c = parent.maybe(key);
  if (!c) return std::string();
  DSF_TRY(std::string text, c->string());
  if (!is_hex(text, digits)) return c->fail(std::to_string(digits) + " lower-case hex digits expected");
  return text;
}

Result<std::string> hex(const Cursor& parent, std::string_view key, size_t digits) {
  DSF_TRY(std::string text, hex_or_open(parent, key, digits));
  if (text.empty()) return parent.fail("\"" + std::string(key) + "\" is missing");
  return text;
}

Result<uint64_t> size_value(const Cursor& c) {
  DSF_TRY(const int64_t n, c.integer(0, static_cast<int64_t>(kMaxSize)));
  return static_cast<uint64_t>(n);
}

Result<uint64_t> size_at(const Cursor& parent, std::string_view key) {
  DSF_TRY(const Cursor c, parent.at(key));
  return size_value(c);
}

Result<SafetensorsFacts> parse_facts(const Cursor& c) {
  DSF_OK(only(c, {"header_bytes", "header_sha256", "tensors"}));
  SafetensorsFacts facts;
  DSF_TRY(facts.header_bytes, size_at(c, "header_bytes"));
  DSF_TRY(facts.header_sha256, hex(c, "header_sha256", 64));
  DSF_TRY(facts.tensors, size_at(c, "tensors"));
  return facts;
}

Result<PinnedTensor> parse_tensor(const Cursor& c) {
  DSF_OK(only(c, {"name", "dtype", "shape", "offsets", "sha256"}));
  PinnedTensor t;
  DSF_TRY(t.name, c.string_at("name"));
  DSF_TRY(t.dtype, c.string_at("dtype"));
  DSF_TRY(const Cursor shape, c.at("shape"));
  DSF_TRY(t.shape, shape.integers(0, static_cast<int64_t>(kMaxSize)));
  DSF_TRY(const Cursor offsets, c.at("offsets"));
  DSF_TRY(const auto pair, offsets.integers(0, static_cast<int64_t>(kMaxSize)));
  if (pair.size() != 2 || pair[0] > pair[1]) return offsets.fail("[begin, end] with begin <= end expected");
  t.begin = static_cast<uint64_t>(pair[0]);
  t.end = static_cast<uint64_t>(pair[1]);
  DSF_TRY(t.sha256, hex(c, "sha256", 64));
  return t;
}

Result<void> parse_file_details(const Cursor& c, PinFile& f) {
  if (const auto facts = c.maybe("safetensors")) {
    DSF_TRY(f.safetensors, parse_facts(*facts));
  }
  if (const auto tensors = c.maybe("tensors")) {
    DSF_TRY(const auto items, tensors->elements());
    for (const Cursor& item : items) {
      DSF_TRY(PinnedTensor t, parse_tensor(item));
      f.tensors.push_back(std::move(t));
    }
  }
  if (const auto pieces = c.maybe("pieces")) {
    DSF_OK(only(*pieces, {"size", "sha256"}));
    PieceDigests p;
    DSF_TRY(p.size, size_at(*pieces, "size"));
    DSF_TRY(p.sha256, hex(*pieces, "sha256", 64));
    if (p.size == 0) return pieces->fail("piece size 0");
    f.pieces = std::move(p);
  }
  return {};
}

Result<PinFile> parse_file(const Cursor& c) {
  DSF_OK(only(c, {"git_sha1", "lfs", "path", "pieces", "pointer_git_sha1", "role", "safetensors", "sha256", "size",
                  "tensors", "xet_hash"}));
  PinFile f;
  DSF_TRY(const Cursor path, c.at("path"));
  DSF_TRY(f.path, path.string());
  if (const std::string why = path_problem(f.path); !why.empty()) return path.fail(why);
  if (const auto size = c.maybe("size")) {
    DSF_TRY(f.size, size_value(*size));
  } else if (c.value().find("size") == nullptr) {
    return c.fail("\"size\" is missing (null when it is not published yet)");
  }
  if (c.value().find("sha256") == nullptr) return c.fail("\"sha256\" is missing (null when it is not published yet)");
  DSF_TRY(f.sha256, hex_or_open(c, "sha256", 64));
  DSF_TRY(f.git_sha1, hex_or_open(c, "git_sha1", 40));
  DSF_TRY(f.pointer_git_sha1, hex_or_open(c, "pointer_git_sha1", 40));
  DSF_TRY(f.xet_hash, hex_or_open(c, "xet_hash", 64));
  DSF_TRY(f.lfs, c.boolean_or("lfs", false));
  DSF_TRY(const std::string role, c.string_at("role"));
  const auto known = role_from(role);
  if (!known) return c.fail("unknown role \"" + printable(role) + "\"");
  f.role = *known;
  DSF_OK(parse_file_details(c, f));
  return f;
}

Result<PinSource> parse_source(const Cursor& c) {
  DSF_OK(only(c, {"endpoint", "license", "repo", "repo_type", "requested_revision", "revision"}));
  PinSource s;
  DSF_TRY(s.endpoint, c.string_at("endpoint"));
  DSF_TRY(s.repo, c.string_at("repo"));
  DSF_TRY(s.repo_type, c.string_at("repo_type"));
  DSF_TRY(s.requested_revision, c.string_at("requested_revision"));
  DSF_TRY(s.license, c.string_or("license", ""));
  if (s.repo_type != "model") return c.fail("only repo_type \"model\" is supported");
  if (s.repo.empty() || !path_problem(s.repo).empty() || std::count(s.repo.begin(), s.repo.end(), '/') > 1) {
    return c.fail("repo \"" + printable(s.repo) + "\" is not namespace/name");
  }
  if (c.value().find("revision") == nullptr)
    return c.fail("\"revision\" is missing (null when it is not published yet)");
  DSF_TRY(s.revision, hex_or_open(c, "revision", 40));
  return s;
}

Result<std::vector<std::string>> strings(const Cursor& parent, std::string_view key) {
  std::vector<std::string> out;
  const auto list = parent.maybe(key);
  if (!list) return out;
  DSF_TRY(const auto items, list->elements());
  for (const Cursor& item : items) {
    DSF_TRY(std::string s, item.string());
    out.push_back(std::move(s));
  }
  return out;
}

Result<void> parse_selection(const Cursor& root, Pin& pin) {
  if (const auto select = root.maybe("select")) {
    DSF_OK(only(*select, {"include", "exclude"}));
    DSF_TRY(pin.select.include, strings(*select, "include"));
    DSF_TRY(pin.select.exclude, strings(*select, "exclude"));
  }
  if (const auto expect = root.maybe("expect")) {
    DSF_TRY(const auto items, expect->elements());
    for (const Cursor& item : items) {
      DSF_OK(only(item, {"glob", "count"}));
      Expectation e;
      DSF_TRY(e.glob, item.string_at("glob"));
      DSF_TRY(e.count, size_at(item, "count"));
      pin.expect.push_back(std::move(e));
    }
  }
  return {};
}

// What must hold over all files together.
Result<void> check_files(const Cursor& root, const Pin& pin) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < pin.files.size(); ++i) {
    if (i > 0 && !(pin.files[i - 1].path < pin.files[i].path)) {
      return root.fail("files are not sorted by path, or one is named twice: " + printable(pin.files[i].path));
    }
    paths.push_back(pin.files[i].path);
  }
  for (const PathConflict& c : path_conflicts(std::move(paths))) {
    if (c.fatal) return root.fail(printable(c.a) + " is both a file and a folder (" + printable(c.b) + ")");
  }
  DSF_TRY(const Cursor totals, root.at("totals"));
  DSF_OK(only(totals, {"bytes", "files"}));
  DSF_TRY(const uint64_t bytes, size_at(totals, "bytes"));
  DSF_TRY(const uint64_t files, size_at(totals, "files"));
  if (files != pin.files.size() || bytes != pin.total_bytes()) {
    return totals.fail("does not add up: the files give " + std::to_string(pin.total_bytes()) + " bytes in " +
                       std::to_string(pin.files.size()));
  }
  return {};
}

Result<Pin> pin_from(const Cursor& root) {
  DSF_OK(only(root, {"complete", "expect", "files", "name", "schema", "select", "source", "totals", "version"}, true));
  Pin pin;
  DSF_TRY(pin.name, root.string_at("name"));
  DSF_TRY(const Cursor complete, root.at("complete"));
  DSF_TRY(pin.complete, complete.boolean());
  DSF_TRY(const Cursor source, root.at("source"));
  DSF_TRY(pin.source, parse_source(source));
  DSF_OK(parse_selection(root, pin));
  DSF_TRY(const Cursor files, root.at("files"));
  DSF_TRY(const auto items, files.elements());
  for (const Cursor& item : items) {
    DSF_TRY(PinFile f, parse_file(item));
    pin.files.push_back(std::move(f));
  }
  DSF_OK(check_files(root, pin));
  for (const auto& [key, value] : root.value().as_object()) {
    if (key.starts_with("x_")) pin.extra.emplace_back(key, value);
  }
  return pin;
}

Result<json::Value> parse_document(std::string_view text, std::string_view subject) {
  if (text.size() > kMaxPinBytes) return fail(Code::kUsage, std::string(subject), "larger than 64 MiB, not a manifest");
  auto value = json::parse(text, subject, {.max_depth = 32});
  if (!value) {
    Error e = value.error();
    e.code = Code::kUsage;
    e.fix = "repair the manifest";
    return fail(std::move(e));
  }
  return std::move(*value);
}

Result<std::string> schema_of(const json::Value& value, std::string_view subject) {
  const Cursor root(value, std::string(subject), Code::kUsage);
  DSF_TRY(std::string schema, root.string_at("schema"));
  DSF_TRY(const int64_t version, root.integer_at("version", 1));
  if (schema != "hub-pin" && schema != "hub-deployment") {
    return fail(Code::kContent, std::string(subject), "unknown schema \"" + printable(schema) + "\"",
                "give a pin or a deployment", "schema");
  }
  if (version > kVersion) {
    return fail(Code::kContent, std::string(subject),
                schema + " version " + std::to_string(version) + " is newer than this program", "use a newer dsf",
                "schema");
  }
  return schema;
}

bool nested(std::string_view a, std::string_view b) {
  return a.empty() || a == b || (b.starts_with(a) && b[a.size()] == '/');
}

Result<Deployment> deployment_from(const json::Value& value, const std::filesystem::path& path) {
  const Cursor root(value, path.string(), Code::kUsage);
  DSF_OK(only(root, {"name", "pins", "schema", "version"}, true));
  Deployment out;
  DSF_TRY(out.name, root.string_at("name"));
  DSF_TRY(const Cursor pins, root.at("pins"));
  DSF_TRY(const auto items, pins.elements());
  for (const Cursor& item : items) {
    DSF_OK(only(item, {"pin", "subfolder"}));
    DSF_TRY(const std::string file, item.string_at("pin"));
    PlacedPin placed;
    DSF_TRY(placed.subfolder, item.string_at("subfolder"));
    for (const std::string& p : {file, placed.subfolder}) {
      if (const std::string why = path_problem(p); !why.empty()) return item.fail(why);
    }
    for (const PlacedPin& other : out.pins) {
      if (nested(other.subfolder, placed.subfolder) || nested(placed.subfolder, other.subfolder)) {
        return item.fail("subfolder lies inside that of another pin");
      }
    }
    placed.file = path.parent_path() / file;
    DSF_TRY(placed.bytes, io::read_text(placed.file, kMaxPinBytes));
    DSF_TRY(placed.pin, parse_pin(placed.bytes, placed.file.string()));
    out.pins.push_back(std::move(placed));
  }
  if (out.pins.empty()) return pins.fail("a deployment names at least one pin");
  return out;
}

}  // namespace

Result<Pin> parse_pin(std::string_view text, std::string_view subject) {
  DSF_TRY(const json::Value value, parse_document(text, subject));
  DSF_TRY(const std::string schema, schema_of(value, subject));
  if (schema != "hub-pin")
    return fail(Code::kUsage, std::string(subject), "a deployment where a single pin is expected",
                "give one of its pins");
  return pin_from(Cursor(value, std::string(subject), Code::kUsage));
}

Result<Pin> load_pin(const std::filesystem::path& path) {
  DSF_TRY(const std::string text, io::read_text(path, kMaxPinBytes));
  return parse_pin(text, path.string());
}

Result<Deployment> load_deployment(const std::filesystem::path& path) {
  DSF_TRY(std::string text, io::read_text(path, kMaxPinBytes));
  DSF_TRY(const json::Value value, parse_document(text, path.string()));
  DSF_TRY(const std::string schema, schema_of(value, path.string()));
  if (schema == "hub-deployment") return deployment_from(value, path);
  Deployment out;
  DSF_TRY(Pin pin, pin_from(Cursor(value, path.string(), Code::kUsage)));
  out.name = pin.name;
  out.pins.push_back({path, "", std::move(pin), std::move(text)});
  return out;
}

}  // namespace dsf::manifest
