#pragma once
// Where picked tensors go: the files of a `tensors` run, their opening bytes, and the place of each tensor in them.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/fetch/range_fetch.h"
#include "tools/fetch/tensors.h"

namespace dsf::fetch {

struct OutputFile {
  std::filesystem::path path;
  uint64_t size = 0;
  std::string prefix;  // written at offset 0
  std::filesystem::path part() const { return path.string() + ".part"; }
};

struct PlacedTensor {
  const PickedTensor* tensor = nullptr;
  size_t output = 0;
  uint64_t at = 0;  // bytes in the output file
};

struct OutputPlan {
  std::vector<OutputFile> files;
  std::vector<PlacedTensor> tensors;  // parallel to TensorPlan::tensors
  std::filesystem::path record, journal;
  std::string identity;  // digest over everything that decides the outputs' bytes
};

Result<OutputPlan> plan_outputs(const TensorPlan& plan, const TensorsOptions& options);
// What has to be read, in the order of plan_requests().
std::vector<Segment> segments_of(const TensorPlan& plan, const OutputPlan& outputs);

}  // namespace dsf::fetch
