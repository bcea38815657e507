#pragma once
// What this build is. Generated once per configure; see common/cmake/version.cpp.in.
#include <string>

namespace dsf::cli {
struct BuildInfo {
  std::string version, commit, compiler, cuda, arch;
};
const BuildInfo& build_info();
// "dsf-fetch 0.1.0 (commit abc, GNU 12.2.0, CUDA 13.0 or none, x86_64)"
std::string version_line(const std::string& tool);
// "dsf-fetch/0.1.0": for created_by fields and the HTTP User-Agent.
std::string tool_id(const std::string& tool);
}  // namespace dsf::cli
