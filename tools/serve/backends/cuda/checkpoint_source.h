#pragma once
// CheckpointSource: the weights of a checkpoint folder, native, EXL3 or plain, for DeviceModel.
//
// EXL3 matrices of codebook mul1 stay packed, BF16, F16 and F32 tensors are copied as they are; E4M3 and FP4 linears become bf16, which holds
// their values exactly. Packed matrices of other codebooks, and every packed matrix under `dequantise`, become f32 on the host: four bytes per
// weight, for small models and comparisons. Borrows the checkpoint.
#include <memory>
#include <vector>

#include "dsf/safetensors/safetensors.h"
#include "tools/serve/backends/cuda/file_uploader.h"
#include "tools/serve/backends/cuda/weight_source.h"
#include "tools/serve/engine/weight_reader.h"

namespace dsf::serve::cuda {

struct CheckpointSourceOptions {
  bool dequantise = false;
  int device = 0;
  int threads = 8;  // readers
};

class CheckpointSource final : public WeightSource {
 public:
  // Checks every router as dsf-preflight does. Errors: those of model::attach_router.
  static Result<std::unique_ptr<CheckpointSource>> open(const safetensors::Checkpoint& checkpoint, const model::Config& config, const gpu::Facts& facts,
                                                        const CheckpointSourceOptions& options);

  Result<StoredLinear> describe(const std::string& name, int64_t out, int64_t in) override;
  bool sliced(const std::string& name) override;
  Result<void> fill_dense(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, float scale, void* dense) override;
  Result<void> fill_exl3(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, void* lanes, uint16_t* suh,
                         uint16_t* svh) override;
  Result<void> fill_vector(const std::string& name, int64_t n, float* values) override;
  Result<LoadReport> finish() override;

 private:
  CheckpointSource(const safetensors::Checkpoint& checkpoint, const gpu::Facts& facts, const CheckpointSourceOptions& options)
      : checkpoint_(checkpoint), reader_(checkpoint), options_(options), files_(options.device, facts, options.threads) {}
  // Bytes [first, first + n) of a tensor; n 0: all from first.
  Result<void> copy_tensor(const std::string& name, void* to, uint64_t first = 0, uint64_t n = 0);
  Result<void> upload(void* to, const void* from, size_t bytes);

  const safetensors::Checkpoint& checkpoint_;
  WeightReader reader_;
  CheckpointSourceOptions options_;
  FileUploader files_;
  gpu::Stream stream_;
};

}  // namespace dsf::serve::cuda
