#include "tools/fetch/bundle_layout.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/json/json.h"

namespace dsf::fetch {
namespace {

constexpr uint64_t kBlock = 512;
constexpr uint64_t kMaxBundleBytes = uint64_t{1} << 46;  // 64 TiB; keeps the frame list of a forged one small
constexpr uint64_t kOctalLimit = uint64_t{1} << 33;      // eleven octal digits

std::string octal(uint64_t value, int digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*llo", digits, static_cast<unsigned long long>(value));
  return text.data();
}

std::string padded(std::string text) {
  text.resize(round_up<size_t>(text.size(), kBlock), '\0');
  return text;
}

// One ustar block. Owner, time and mode are fixed, so that equal input gives equal bytes.
std::string ustar(std::string_view name, uint64_t size, char type) {
  std::string b(kBlock, '\0');
  const auto put = [&](size_t at, std::string_view text) { b.replace(at, text.size(), text); };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(size, 11));
  put(136, "00000000000");
  put(148, "        ");
  b[156] = type;
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  uint64_t sum = 0;
  for (const char c : b) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6));
  b[154] = '\0';
  b[155] = ' ';
  return b;
}

// "<length> key=value\n", where the length counts itself.
std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) length = std::to_string(length).size() + rest.size();
  return std::to_string(length) + rest;
}

json::Value file_list(const std::vector<BundleFile>& files) {
  json::Value out = json::Value::array();
  for (const BundleFile& f : files) {
    json::Value v = json::Value::object();
    v.set("path", f.path);
    v.set("sha256", f.sha256);
    v.set("size", f.size);
    out.push(std::move(v));
  }
  return out;
}

Result<std::vector<BundleFile>> read_files(const json::Cursor& list) {
  std::vector<BundleFile> out;
  DSF_TRY(const auto items, list.elements());
  for (const json::Cursor& c : items) {
    BundleFile f;
    DSF_TRY(f.path, c.string_at("path"));
    if (const std::string why = manifest::path_problem(f.path); !why.empty()) return c.fail(why);
    DSF_TRY(f.sha256, c.string_at("sha256"));
    if (!codec::Digest::from_hex(f.sha256)) return c.fail("sha256 is not 64 hex digits");
    DSF_TRY(const int64_t size, c.integer_at("size", 0, (int64_t{1} << 53) - 1));
    f.size = static_cast<uint64_t>(size);
    out.push_back(std::move(f));
  }
  return out;
}

Result<void> check_together(const Bundle& b, std::string_view subject) {
  std::vector<std::string> paths;
  for (const BundleFile& f : b.files) paths.push_back(f.path);
  for (const BundleFile& f : b.left_out) paths.push_back(f.path);
  uint64_t total = 0;
  for (const BundleFile& f : b.files) total += std::min(f.size, kMaxBundleBytes);
  if (total >= kMaxBundleBytes)
    return fail(Code::kContent, std::string(subject), "names more bytes than a bundle may hold", "do not use it",
                "bundle");
  for (const manifest::PathConflict& c : manifest::path_conflicts(std::move(paths))) {
    if (c.fatal) {
      return fail(Code::kContent, std::string(subject),
                  "names " + manifest::printable(c.a) + " twice, or as file and folder", "do not use this bundle",
                  "bundle");
    }
  }
  return {};
}

std::string sums_of(const Bundle& b) {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const BundleFile& f : b.files) lines.emplace_back(f.path, f.sha256);
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const auto& [path, digest] : lines) out += digest + "  " + path + "\n";
  return out;
}

}  // namespace

std::string tar_header(const std::string& path, uint64_t size) {
  std::string pax;
  if (path.size() > 100) pax += pax_record("path", path);
  if (size >= kOctalLimit) pax += pax_record("size", std::to_string(size));
  std::string out;
  if (!pax.empty()) out = ustar("pax", pax.size(), 'x') + padded(pax);
  return out + ustar(path, size >= kOctalLimit ? 0 : size, '0');
}

std::string Bundle::json() const {
  json::Value v = json::Value::object();
  v.set("files", file_list(files));
  v.set("left_out", file_list(left_out));
  v.set("manifest_bytes", manifest.size());
  v.set("name", name);
  v.set("repo", repo);
  v.set("revision", revision);
  v.set("schema", "hub-bundle");
  v.set("signature_bytes", signature.size());
  v.set("version", 1);
  return manifest::canonical_json(v);
}

Bundle bundle_of(const manifest::Pin& pin, const std::string& pin_bytes, const std::string& signature,
                 const manifest::Pin* base) {
  Bundle b{pin.name, pin.source.repo, pin.source.revision, {}, {}, pin_bytes, signature};
  std::set<std::string> known;
  if (base != nullptr) {
    for (const manifest::PinFile& f : base->files) known.insert(f.sha256);
  }
  std::vector<const manifest::PinFile*> order;
  for (const manifest::PinFile& f : pin.files) order.push_back(&f);
  // Weights last: whoever reads the stream has all that is small at once.
  std::stable_partition(order.begin(), order.end(), [](const auto* f) { return f->role != manifest::Role::kWeights; });
  for (const manifest::PinFile* f : order) {
    const BundleFile file{f->path, f->size.value_or(0), f->sha256};
    (known.contains(f->sha256) ? b.left_out : b.files).push_back(file);
  }
  return b;
}

Result<Bundle> parse_bundle(std::string_view text, BundleSizes& sizes, std::string_view subject) {
  DSF_TRY(const json::Value value, json::parse(text, subject, {.max_depth = 8}));
  const json::Cursor root(value, std::string(subject));
  DSF_TRY(const std::string schema, root.string_at("schema"));
  DSF_TRY(const int64_t version, root.integer_at("version", 1));
  if (schema != "hub-bundle" || version > 1)
    return root.fail("is no bundle of version 1", "use the dsf-fetch that made it, or a newer one");
  Bundle b;
  DSF_TRY(b.name, root.string_at("name"));
  DSF_TRY(b.repo, root.string_at("repo"));
  DSF_TRY(b.revision, root.string_at("revision"));
  DSF_TRY(const json::Cursor files, root.at("files"));
  DSF_TRY(b.files, read_files(files));
  DSF_TRY(const json::Cursor left_out, root.at("left_out"));
  DSF_TRY(b.left_out, read_files(left_out));
  DSF_TRY(const int64_t manifest, root.integer_at("manifest_bytes", 0, static_cast<int64_t>(manifest::kMaxPinBytes)));
  DSF_TRY(const int64_t signature, root.integer_at("signature_bytes", 0, 4096));
  sizes = {static_cast<uint64_t>(manifest), static_cast<uint64_t>(signature)};
  DSF_OK(check_together(b, subject));
  return b;
}

std::vector<Member> members_of(const Bundle& b, const std::string& json, const BundleSizes& sizes) {
  std::vector<Member> out;
  uint64_t at = 0;
  const auto add = [&](const std::string& path, std::string text, uint64_t size, std::optional<size_t> file) {
    out.push_back({path, tar_header(path, size), file, std::move(text), at, size});
    at = out.back().end();
  };
  add("BUNDLE.json", json, json.size(), std::nullopt);
  const std::string sums = sums_of(b);
  add("SHA256SUMS", sums, sums.size(), std::nullopt);
  add("manifest.json", b.manifest, sizes.manifest, std::nullopt);
  if (sizes.signature > 0) add("manifest.json.sig", b.signature, sizes.signature, std::nullopt);
  for (size_t i = 0; i < b.files.size(); ++i) add(b.files[i].path, {}, b.files[i].size, i);
  out.push_back({"", std::string(2 * kBlock, '\0'), std::nullopt, {}, at, 0});
  return out;
}

std::vector<Frame> frames_of(const std::vector<Member>& members) {
  std::vector<Frame> out;
  for (size_t i = 0; i < members.size(); ++i) {
    for (uint64_t at = members[i].begin; at < members[i].end(); at += kBundleFrameBytes)
      out.push_back({i, at, std::min(members[i].end(), at + kBundleFrameBytes)});
  }
  return out;
}

std::string fixed_bytes(const Member& m, uint64_t begin, uint64_t end) {
  std::string out;
  for (uint64_t at = begin; at < end;) {
    if (at < m.content()) {
      const uint64_t n = std::min(end, m.content()) - at;
      out.append(m.header, static_cast<size_t>(at - m.begin), static_cast<size_t>(n));
      at += n;
    } else if (at < m.content() + m.text.size()) {
      const uint64_t n = std::min(end, m.content() + m.text.size()) - at;
      out.append(m.text, static_cast<size_t>(at - m.content()), static_cast<size_t>(n));
      at += n;
    } else {
      out.append(static_cast<size_t>(end - at), '\0');
      at = end;
    }
  }
  return out;
}

}  // namespace dsf::fetch
