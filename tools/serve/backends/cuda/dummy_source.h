#pragma once
// DummySource: random weights of any configuration, made on the device, without files (--load-format dummy). For measuring at full size: the
// forms and widths are those of the published 2.9 bpw pack, the values keep streams near 1, the answers mean nothing.
#include <memory>

#include "dsf/gpu/gpu.h"
#include "dsf/model/config.h"
#include "tools/serve/backends/cuda/weight_source.h"

namespace dsf::serve::cuda {

// Width of a packed matrix of the published pack (exl3.md 6.2), by its name; 0 for weights that it stores unpacked.
int published_bits(const std::string& name);

class DummySource final : public WeightSource {
 public:
  static Result<std::unique_ptr<DummySource>> open(const model::Config& config, uint64_t seed);

  Result<StoredLinear> describe(const std::string& name, int64_t out, int64_t in) override;
  bool sliced(const std::string& name) override;
  Result<void> fill_dense(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, float scale, void* dense) override;
  Result<void> fill_exl3(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, void* lanes, uint16_t* suh,
                         uint16_t* svh) override;
  Result<void> fill_vector(const std::string& name, int64_t n, float* values) override;
  Result<LoadReport> finish() override;

 private:
  DummySource(const model::Config& config, uint64_t seed) : config_(config), seed_(seed) {}
  uint64_t seed_of(const std::string& name) const;

  const model::Config& config_;
  uint64_t seed_;
  gpu::Stream stream_;
};

}  // namespace dsf::serve::cuda
