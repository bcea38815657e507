#pragma once
// Rules for names that come from outside: paths of a listing, manifest, index or bundle, and the glob filters over
// them.
//
// Pure functions, any thread. Check every path with path_problem() before it is joined to a folder. Source:
// hub.md 3.11, 3.12.
#include <string>
#include <string_view>
#include <vector>

namespace dsf::manifest {

// Why this relative path must not be used ("absolute path", "component '..'", ...); empty when it is safe. The clause
// holds no part of the path, so that it can be printed.
std::string path_problem(std::string_view path);

// Why the path would not survive on other systems (reserved names, trailing dots, over 240 bytes); empty when portable.
std::string portability_problem(std::string_view path);

struct PathConflict {
  std::string a, b;
  bool fatal;  // one is a folder of the other, or both are equal; otherwise they differ only in ASCII case
};
std::vector<PathConflict> path_conflicts(std::vector<std::string> paths);

// The path with control and bidirectional characters replaced, for terminals.
std::string printable(std::string_view path);

// Shell pattern over the whole path as the public Python client applies it: case-sensitive, '*' and '?' also match '/',
// [seq] and
// [!seq], a pattern that ends in '/' means everything below. No backslash escapes.
bool glob_match(std::string_view pattern, std::string_view path);

struct Filter {
  std::vector<std::string> include, exclude;
  // (no include, or one matches) and no exclude matches.
  bool takes(std::string_view path) const;
};

}  // namespace dsf::manifest
