// dsf-bench: measures an OpenAI-compatible endpoint with a reproducible concurrency matrix.
#include <iostream>

#include "dsf/cli/app.h"
#include "dsf/codec/sha256.h"
#include "tools/bench/prompts.h"

int main(int argc, char** argv) {
  return dsf::cli::run_main(argc, argv, [](dsf::cli::Args) -> dsf::Result<int> {
    std::cout << dsf::codec::sha256(dsf::bench::prompt_text({})).hex() << "\n";
    return 0;
  });
}
