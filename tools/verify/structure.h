#pragma once
// The structure of one safetensors file: every check has a stable code and all findings are collected. Source:
// hub.md 5.2.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "tools/verify/evidence.h"
#include "tools/verify/report.h"

namespace dsf::verify {

struct Tensor {
  std::string name, dtype;
  uint64_t begin = 0, end = 0;
};

struct Structure {
  std::vector<Finding> findings;
  std::vector<Tensor> tensors;  // as far as the header could be read
};

// Reads only the header. Errors: kLocal, kMissing (I/O; a malformed file is a finding).
Result<Structure> check_structure(const std::filesystem::path& path, const Expected* expected);

}  // namespace dsf::verify
