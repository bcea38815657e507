#include "dsf/manifest/pin.h"

#include <algorithm>
#include <array>
#include <map>

namespace dsf::manifest {
namespace {

constexpr std::array<std::pair<Role, std::string_view>, 9> kRoles = {{
    {Role::kWeights, "weights"},
    {Role::kIndex, "index"},
    {Role::kConfig, "config"},
    {Role::kTokenizer, "tokenizer"},
    {Role::kTemplate, "template"},
    {Role::kCode, "code"},
    {Role::kLicense, "license"},
    {Role::kDoc, "doc"},
    {Role::kOther, "other"},
}};

// First match wins; patterns are applied to the last component of the path.
constexpr std::array<std::pair<std::string_view, Role>, 21> kGuesses = {{
    {"*.safetensors", Role::kWeights},
    {"*.gguf", Role::kWeights},
    {"*.bin", Role::kWeights},
    {"*.pt", Role::kWeights},
    {"*.index.json", Role::kIndex},
    {"tokenizer*", Role::kTokenizer},
    {"vocab*", Role::kTokenizer},
    {"merges.txt", Role::kTokenizer},
    {"*.model", Role::kTokenizer},
    {"special_tokens_map.json", Role::kTokenizer},
    {"added_tokens.json", Role::kTokenizer},
    {"chat_template*", Role::kTemplate},
    {"*.py", Role::kCode},
    {"LICENSE*", Role::kLicense},
    {"NOTICE*", Role::kLicense},
    {"*.md", Role::kDoc},
    {"*.png", Role::kDoc},
    {"*.jpg", Role::kDoc},
    {"*.svg", Role::kDoc},
    {"*.pdf", Role::kDoc},
    {"*.json", Role::kConfig},
}};

std::string shown(const std::optional<uint64_t>& size) { return size ? std::to_string(*size) + " bytes" : "size open"; }

// What changed in one file; empty when nothing that matters did.
std::string change_of(const PinFile& a, const PinFile& b, bool& content_changed) {
  std::string text;
  if (a.size != b.size) {
    content_changed = content_changed || a.size.has_value();
    text += " " + shown(a.size) + " -> " + shown(b.size);
  }
  const auto digest = [&](std::string_view what, const std::string& x, const std::string& y) {
    if (x == y) return;
    content_changed = content_changed || !x.empty();
    text += " " + std::string(what) + " " + (x.empty() ? "open" : x.substr(0, 12)) + " -> " +
            (y.empty() ? "open" : y.substr(0, 12));
  };
  digest("sha256", a.sha256, b.sha256);
  digest("git_sha1", a.git_sha1, b.git_sha1);
  return text;
}

}  // namespace

std::string_view role_name(Role role) {
  for (const auto& [r, name] : kRoles) {
    if (r == role) return name;
  }
  return "other";
}

std::optional<Role> role_from(std::string_view name) {
  for (const auto& [r, n] : kRoles) {
    if (n == name) return r;
  }
  return std::nullopt;
}

Role guess_role(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const auto& [pattern, role] : kGuesses) {
    if (glob_match(pattern, name)) return role;
  }
  return Role::kOther;
}

std::vector<std::string> Pin::open_items(size_t limit) const {
  std::vector<std::string> out;
  const auto add = [&](std::string text) {
    if (out.size() < limit) out.push_back(std::move(text));
  };
  if (source.revision.empty()) add("revision");
  for (const Expectation& e : expect) {
    const auto n =
        std::count_if(files.begin(), files.end(), [&](const PinFile& f) { return glob_match(e.glob, f.path); });
    if (static_cast<uint64_t>(n) != e.count) {
      add(std::to_string(n) + " of " + std::to_string(e.count) + " files " + e.glob);
    }
  }
  for (const PinFile& f : files) {
    if (!f.size) {
      add(f.path + ": size");
    } else if (f.sha256.empty()) {
      add(f.path + ": sha256");
    }
  }
  if (files.empty()) add("files");
  return out;
}

bool Pin::open() const { return !open_items(1).empty(); }

uint64_t Pin::total_bytes() const {
  uint64_t sum = 0;  // cannot overflow in practice: sizes are below 2^53 and files below 2^26 / 40 bytes each
  for (const PinFile& f : files) sum += f.size.value_or(0);
  return sum;
}

const PinFile* Pin::find(std::string_view path) const {
  const auto it = std::lower_bound(files.begin(), files.end(), path,
                                   [](const PinFile& f, std::string_view p) { return f.path < p; });
  return it != files.end() && it->path == path ? &*it : nullptr;
}

void Pin::sort() {
  std::sort(files.begin(), files.end(), [](const PinFile& a, const PinFile& b) { return a.path < b.path; });
}

PinDiff diff(const Pin& before, const Pin& after) {
  PinDiff out;
  if (before.source.revision != after.source.revision) {
    out.lines.push_back("revision " + (before.source.revision.empty() ? "open" : before.source.revision) + " -> " +
                        after.source.revision);
  }
  std::map<std::string_view, std::pair<const PinFile*, const PinFile*>> both;
  for (const PinFile& f : before.files) both[f.path].first = &f;
  for (const PinFile& f : after.files) both[f.path].second = &f;
  for (const auto& [path, pair] : both) {
    const auto& [a, b] = pair;
    if (a == nullptr) {
      out.lines.push_back("+ " + printable(path) + " (" + shown(b->size) + ")");
    } else if (b == nullptr) {
      out.lines.push_back("- " + printable(path) + " (" + shown(a->size) + ")");
    } else if (const std::string change = change_of(*a, *b, out.content_changed); !change.empty()) {
      out.lines.push_back("~ " + printable(path) + change);
    }
  }
  if (before.total_bytes() != after.total_bytes()) {
    out.lines.push_back("total " + std::to_string(before.total_bytes()) + " -> " + std::to_string(after.total_bytes()) +
                        " bytes");
  }
  return out;
}

}  // namespace dsf::manifest
