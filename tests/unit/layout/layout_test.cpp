// Holds the tree against the rules that keep it readable: which library may include which, where third-party headers may stand,
// and that CUDA types stay in their rooms.
#include <algorithm>
#include <array>
#include <doctest/doctest.h>
#include <map>
#include <set>
#include <sstream>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;

namespace {

const std::filesystem::path kRoot = DSF_SOURCE_DIR;

struct Source {
  std::string path;                   // relative to the root
  std::vector<std::string> includes;  // as written, without quotes
};

std::vector<Source> sources(const std::string& top) {
  std::vector<Source> out;
  const std::vector<std::string> files = io::list_files(kRoot / top).value();
  for (const std::string& file : files) {
    const std::string extension = std::filesystem::path(file).extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
    Source s{top + "/" + file, {}};
    std::istringstream lines(io::read_text(kRoot / s.path).value());
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("#include ")) continue;
      const size_t open = line.find_first_of("<\""), close = line.find_last_of(">\"");
      if (open != std::string::npos && close > open) s.includes.push_back(line.substr(open + 1, close - open - 1));
    }
    out.push_back(std::move(s));
  }
  return out;
}

const std::map<std::string, int> kRows{{"base", 0}, {"io", 1}, {"json", 1}, {"tensor", 1}, {"cli", 1}, {"gpu", 1}, {"codec", 2}, {"manifest", 2},
                                       {"safetensors", 2}, {"http", 2}, {"comm", 2}, {"hub", 3}, {"tokenizer", 3}, {"exl3", 3}, {"engram", 3}, {"model", 4}};

// "dsf/json/json.h" -> "json"; empty for anything else.
std::string library_of(const std::string& include) {
  if (!include.starts_with("dsf/")) return "";
  return include.substr(4, include.find('/', 4) - 4);
}

}  // namespace

TEST_CASE("a library includes only libraries of rows above its own") {
  std::set<std::string> edges;
  for (const Source& s : sources("common")) {
    const std::string from = s.path.substr(7, s.path.find('/', 7) - 7);
    REQUIRE_MESSAGE(kRows.contains(from), s.path);
    for (const std::string& include : s.includes) {
      const std::string to = library_of(include);
      if (to.empty() || to == from) continue;
      REQUIRE_MESSAGE(kRows.contains(to), s.path << " includes " << include);
      edges.insert(from + " -> " + to);
      CHECK_MESSAGE(kRows.at(to) < kRows.at(from), s.path << " includes " << include << ", which is not in a row above");
    }
  }
  std::string graph;
  for (const std::string& e : edges) graph += e + "\n";
  MESSAGE("include graph of common/:\n" << graph);
}

TEST_CASE("tools never include each other") {
  for (const Source& s : sources("tools")) {
    const std::string tool = s.path.substr(6, s.path.find('/', 6) - 6);
    for (const std::string& include : s.includes)
      if (include.starts_with("tools/")) CHECK_MESSAGE(include.starts_with("tools/" + tool + "/"), s.path << " includes " << include);
  }
}

TEST_CASE("third-party headers stay in the .cpp files of the library that wraps them") {
  const std::map<std::string, std::string> wrapper{{"CLI/", "common/cli/src/"}, {"curl/", "common/http/src/"}, {"boost/", "common/http/src/"},
                                                   {"nlohmann/", "common/json/src/"}, {"openssl/", "common/codec/src/"}, {"zstd.h", "common/codec/src/"},
                                                   {"cuda_runtime", ""}, {"nccl.h", ""}};
  const std::array<std::string, 5> cuda_rooms{"common/gpu/", "common/comm/", "tools/serve/backends/ops/", "tools/serve/backends/cuda/", "tests/"};
  for (const char* top : {"common", "tools"}) {
    for (const Source& s : sources(top)) {
      for (const std::string& include : s.includes) {
        for (const auto& [prefix, home] : wrapper) {
          if (!include.starts_with(prefix)) continue;
          const bool fine = home.empty() ? std::any_of(cuda_rooms.begin(), cuda_rooms.end(), [&](const std::string& room) { return s.path.starts_with(room); })
                                         : s.path.starts_with(home);
          CHECK_MESSAGE(fine, s.path << " includes <" << include << ">");
        }
      }
    }
  }
}
