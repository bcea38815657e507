#pragma once
// What dsf-quantize does with its plan. Writes plan.output and nothing else; does not print.
#include <optional>
#include <string>
#include <vector>

#include "tests/support/quantize/options.h"

namespace dsf::quantize {

struct PackedReport {
  std::string name;
  int bits = 0;
  int64_t out = 0, in = 0;
  double error = 0;                      // |W - W'| / |W|
  std::optional<double> output_error{};  // the same of the outputs under the moments of Collector::moments()
  double n_rows = 0;                     // calibration rows that the matrix itself saw
};

struct Report {
  std::vector<PackedReport> matrices;  // in the order of the pack
  double mean_bits = 0;                // per packed weight
  // Root of the mean over the matrices of the squared errors.
  double rms_error = 0;
  std::optional<double> rms_output_error;
};

// The pack appears whole, by renaming OUTPUT.part; an interrupted run leaves that folder, and the next one removes it.
// The same plan and files give the same bytes for any number of threads; with a calibration text the CPU engine's
// activations come in, whose last bits a C library's exp() decides: then the same bytes on machines with the same one.
// Errors: kUsage when the output exists; kMissing, kContent for the checkpoint; those of engine and writer.
Result<Report> run(const Plan& plan);

}  // namespace dsf::quantize
