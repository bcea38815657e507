#include "dsf/manifest/path.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace dsf::manifest {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string folded(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

// Decodes one code point at i and advances; -1 for anything that is not shortest-form UTF-8 of a scalar value.
int32_t next_code_point(std::string_view s, size_t& i) {
  const auto byte = [&](size_t k) { return k < s.size() ? static_cast<uint8_t>(s[k]) : uint8_t{0}; };
  const uint8_t first = byte(i);
  const int extra = first < 0x80 ? 0 : (first >> 5) == 6 ? 1 : (first >> 4) == 14 ? 2 : (first >> 3) == 30 ? 3 : -1;
  if (extra < 0) return -1;
  int32_t cp = extra == 0 ? first : first & (0x3f >> extra);
  for (int k = 1; k <= extra; ++k) {
    const uint8_t next = byte(i + static_cast<size_t>(k));
    if ((next & 0xc0) != 0x80) return -1;
    cp = (cp << 6) | (next & 0x3f);
  }
  static constexpr std::array<int32_t, 4> kLeast = {0, 0x80, 0x800, 0x10000};
  if (cp < kLeast[static_cast<size_t>(extra)] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return -1;
  i += static_cast<size_t>(extra) + 1;
  return cp;
}

bool valid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    if (next_code_point(s, i) < 0) return false;
  }
  return true;
}

std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> out;
  for (size_t i = 0;;) {
    const size_t slash = path.find('/', i);
    out.push_back(path.substr(i, slash == std::string_view::npos ? slash : slash - i));
    if (slash == std::string_view::npos) return out;
    i = slash + 1;
  }
}

bool drive_letter(std::string_view s) {
  return s.size() >= 2 && s[1] == ':' && ((s[0] >= 'a' && s[0] <= 'z') || (s[0] >= 'A' && s[0] <= 'Z'));
}

// Index of the ']' that closes the set opened at pattern[i], or npos: then '[' is an ordinary character.
size_t set_end(std::string_view pattern, size_t i) {
  size_t k = i + 1;
  if (k < pattern.size() && pattern[k] == '!') ++k;
  if (k < pattern.size() && pattern[k] == ']') ++k;
  return pattern.find(']', k);
}

bool set_holds(std::string_view set, char c) {
  const bool negated = set.starts_with('!');
  if (negated) set.remove_prefix(1);
  bool found = false;
  for (size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      found = found || (static_cast<uint8_t>(set[i]) <= static_cast<uint8_t>(c) &&
                        static_cast<uint8_t>(c) <= static_cast<uint8_t>(set[i + 2]));
      i += 2;
    } else {
      found = found || set[i] == c;
    }
  }
  return found != negated;
}

}  // namespace

std::string path_problem(std::string_view path) {
  if (path.empty()) return "empty path";
  if (path.size() > 4096) return "path longer than 4096 bytes";
  if (path.find('\0') != std::string_view::npos) return "NUL in path";
  if (!valid_utf8(path)) return "path is not valid UTF-8";
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "control character in path";
  }
  if (path.find('\\') != std::string_view::npos) return "backslash in path";
  if (path.front() == '/') return "absolute path";
  if (drive_letter(path)) return "path with a drive letter";
  const auto parts = components(path);
  for (const std::string_view part : parts) {
    if (part.empty()) return "empty component in path";
    if (part == "." || part == "..") return "component '" + std::string(part) + "' in path";
    if (part.size() > 255) return "component longer than 255 bytes";
  }
  const std::string first = folded(parts.front());
  if (first == ".cache" || first == ".git") return "path inside " + first + ", which is kept for bookkeeping";
  return {};
}

std::string portability_problem(std::string_view path) {
  if (path.size() > 240) return "longer than 240 bytes";
  if (path.find_first_of("<>:\"|?*") != std::string_view::npos) return "a character that some systems forbid";
  for (const std::string_view part : components(path)) {
    if (part.empty()) continue;
    if (part.back() == '.' || part.back() == ' ') return "a component that ends in a dot or space";
    const std::string stem = folded(part.substr(0, part.find('.')));
    static constexpr std::array<std::string_view, 4> kReserved = {"con", "prn", "aux", "nul"};
    const bool numbered =
        stem.size() == 4 && (stem.starts_with("com") || stem.starts_with("lpt")) && stem[3] >= '1' && stem[3] <= '9';
    if (numbered || std::find(kReserved.begin(), kReserved.end(), stem) != kReserved.end())
      return "a name that some systems reserve";
  }
  return {};
}

std::vector<PathConflict> path_conflicts(std::vector<std::string> paths) {
  std::vector<PathConflict> out;
  std::sort(paths.begin(), paths.end());
  for (size_t i = 0; i < paths.size(); ++i) {
    if (i > 0 && paths[i] == paths[i - 1]) out.push_back({paths[i - 1], paths[i], true});
    for (size_t slash = paths[i].find('/'); slash != std::string::npos; slash = paths[i].find('/', slash + 1)) {
      const std::string folder = paths[i].substr(0, slash);
      if (std::binary_search(paths.begin(), paths.end(), folder)) out.push_back({folder, paths[i], true});
    }
  }
  std::vector<std::pair<std::string, std::string>> by_fold;
  for (const std::string& p : paths) by_fold.emplace_back(folded(p), p);
  std::sort(by_fold.begin(), by_fold.end());
  for (size_t i = 1; i < by_fold.size(); ++i) {
    if (by_fold[i].first == by_fold[i - 1].first && by_fold[i].second != by_fold[i - 1].second) {
      out.push_back({by_fold[i - 1].second, by_fold[i].second, false});
    }
  }
  return out;
}

std::string printable(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size();) {
    const size_t at = i;
    const int32_t cp = next_code_point(path, i);
    if (cp < 0) {
      out += '?';
      ++i;
      continue;
    }
    const bool control = cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
    const bool bidirectional =
        cp == 0x61c || cp == 0x200e || cp == 0x200f || (cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
    if (control || bidirectional) {
      out += '?';
    } else {
      out += path.substr(at, i - at);
    }
  }
  return out;
}

// Iterative with one fallback point per '*': linear stack, at most |pattern| x |path| steps.
bool glob_match(std::string_view pattern_text, std::string_view path) {
  std::string pattern(pattern_text);
  if (pattern.ends_with('/')) pattern += '*';
  size_t p = 0, s = 0, star = std::string::npos, star_s = 0;
  while (s < path.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_s = s;
      continue;
    }
    if (s < path.size() && p < pattern.size()) {
      const size_t close = pattern[p] == '[' ? set_end(pattern, p) : std::string::npos;
      const bool set = close != std::string::npos;
      if (set ? set_holds(std::string_view(pattern).substr(p + 1, close - p - 1), path[s])
              : pattern[p] == '?' || pattern[p] == path[s]) {
        p = set ? close + 1 : p + 1;
        ++s;
        continue;
      }
    }
    if (star == std::string::npos || star_s >= path.size()) return false;
    p = star + 1;
    s = ++star_s;
  }
  return true;
}

bool Filter::takes(std::string_view path) const {
  const auto matches = [&](const std::string& g) { return glob_match(g, path); };
  return (include.empty() || std::any_of(include.begin(), include.end(), matches)) &&
         std::none_of(exclude.begin(), exclude.end(), matches);
}

}  // namespace dsf::manifest
