#pragma once
// What dsf-quantize says about its work: a table, or a record.
#include <string>

#include "dsf/json/json.h"
#include "tests/support/quantize/run.h"

namespace dsf::quantize {

// One line a matrix and one for all of them.
std::string to_text(const Report& report);
// The record "quantize": its inputs are the files of the native folder and the calibration text. Errors: those of
// reading them again.
Result<json::Value> to_json(const Report& report, const Plan& plan);

}  // namespace dsf::quantize
