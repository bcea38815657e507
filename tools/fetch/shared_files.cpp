// Where the installed data files are: beside the program, or in the source tree it was built from.
#include <cstdlib>
#include <filesystem>

#include "tools/fetch/get.h"

namespace dsf::fetch {

Result<std::filesystem::path> find_shared(const std::string& relative) {
  std::error_code ignored;
  std::vector<std::filesystem::path> roots;
  if (const char* dir = std::getenv("DSF_DATA_DIR"); dir != nullptr)
    roots.emplace_back(dir);  // NOLINT(concurrency-mt-unsafe): before threads
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) roots.push_back(program.parent_path().parent_path() / "share" / "dsf");
  // A program in <source>/build/<preset>/bin uses the manifests of its source tree.
  if (!program.empty()) roots.push_back(program.parent_path().parent_path().parent_path().parent_path());
  for (const auto& root : roots) {
    if (std::filesystem::exists(root / relative, ignored)) return root / relative;
  }
  return fail(Code::kMissing, relative, "is not in share/dsf beside this program",
              "set DSF_DATA_DIR to the folder that holds it");
}

std::string find_manifest(const std::string& what) {
  std::error_code ignored;
  if (what.find('/') != std::string::npos || std::filesystem::exists(what, ignored)) return what;
  const auto path = find_shared("manifests/" + what + (what.ends_with(".json") ? "" : ".json"));
  return path ? path->string() : what;
}

}  // namespace dsf::fetch
