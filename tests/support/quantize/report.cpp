#include "tests/support/quantize/report.h"

#include <cstdio>

#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "tools/serve/identity.h"

namespace dsf::quantize {
namespace {

std::string text_of(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

json::Value or_null(const std::optional<double>& v) { return v ? json::Value(*v) : json::Value(); }

}  // namespace

std::string to_text(const Report& r) {
  size_t width = 6;
  for (const PackedReport& m : r.matrices) width = std::max(width, m.name.size());
  std::string text = text_of("%-*s bits   out    in   error  outputs    rows\n", static_cast<int>(width), "matrix");
  for (const PackedReport& m : r.matrices) {
    text += text_of("%-*s %4d %5lld %5lld %7.4f", static_cast<int>(width), m.name.c_str(), m.bits,
                    static_cast<long long>(m.out), static_cast<long long>(m.in), m.error);
    text += m.output_error ? text_of("  %7.4f %7.0f\n", *m.output_error, m.n_rows) : "        -       -\n";
  }
  text += text_of("%-*s %4.2f             %7.4f", static_cast<int>(width), "all", r.mean_bits, r.rms_error);
  return text + (r.rms_output_error ? text_of("  %7.4f\n", *r.rms_output_error) : "        -\n");
}

Result<json::Value> to_json(const Report& r, const Plan& plan) {
  manifest::Record record;
  record.schema = "quantize";
  record.created_by = cli::tool_id("dsf-quantize");
  DSF_TRY(record.inputs, serve::checkpoint_inputs(plan.native, UINT64_MAX));
  if (!plan.calibration.empty()) {
    DSF_TRY(const codec::Digest digest, codec::sha256_file(plan.calibration));
    record.inputs.push_back({std::filesystem::path(plan.calibration).filename().string(), digest.hex()});
  }
  for (const PackedReport& m : r.matrices) {
    record.items.push_back(json::Object{{"matrix", m.name},
                                        {"bits", m.bits},
                                        {"out", m.out},
                                        {"in", m.in},
                                        {"error", m.error},
                                        {"output_error", or_null(m.output_error)},
                                        {"rows", m.n_rows}});
  }
  record.more = {{"ldlq", plan.ldlq && !plan.calibration.empty()},
                 {"mean_bits", r.mean_bits},
                 {"rms_error", r.rms_error},
                 {"rms_output_error", or_null(r.rms_output_error)}};
  return manifest::to_json(record);
}

}  // namespace dsf::quantize
