#include "dsf/cli/version.h"

namespace dsf::cli {
std::string version_line(const std::string& tool) {
  const BuildInfo& b = build_info();
  return tool + " " + b.version + " (commit " + b.commit + ", " + b.compiler + ", CUDA " + b.cuda + ", " + b.arch + ")";
}
std::string tool_id(const std::string& tool) { return tool + "/" + build_info().version; }
}  // namespace dsf::cli
