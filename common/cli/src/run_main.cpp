#include <cstdio>
#include <exception>
#include <string>

#include "dsf/cli/app.h"
#include "dsf/cli/log.h"

namespace dsf::cli {

int run_main(int argc, char** argv, const std::function<Result<int>(Args)>& body) {
  std::string name = argc > 0 ? argv[0] : "dsf";
  name = name.substr(name.rfind('/') + 1);
  set_tool_name(name);
  try {
    const Result<int> rc = body({argc, argv});
    if (rc) return *rc;
    std::fprintf(stderr, "%s: %s\n", name.c_str(), rc.error().line().c_str());
    return static_cast<int>(rc.error().code);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: internal error: %s; report this with the output of %s --version\n", name.c_str(), e.what(), name.c_str());
  } catch (...) {
    std::fprintf(stderr, "%s: internal error; report this with the output of %s --version\n", name.c_str(), name.c_str());
  }
  return static_cast<int>(Code::kBug);
}

}  // namespace dsf::cli
