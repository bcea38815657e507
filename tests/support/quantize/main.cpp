#include <cstdio>

#include "dsf/cli/app.h"
#include "tests/support/quantize/report.h"

int main(int argc, char** argv) {
  return dsf::cli::run_main(argc, argv, [](dsf::cli::Args args) -> dsf::Result<int> {
    DSF_TRY(const auto plan, dsf::quantize::parse_plan(args));
    if (!plan) return 0;
    DSF_TRY(const dsf::quantize::Report report, dsf::quantize::run(*plan));
    std::string text = to_text(report);
    if (plan->json) {
      DSF_TRY(const dsf::json::Value record, to_json(report, *plan));
      text = dsf::json::dump(record, dsf::json::Style::kPretty) + "\n";
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  });
}
