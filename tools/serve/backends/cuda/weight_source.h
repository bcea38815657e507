#pragma once
// Where the device's weights come from: a checkpoint (checkpoint_source.h), or thin air (dummy_source.h).
//
// DeviceModel asks for every weight twice: describe() for the plan, before anything is allocated, then the fill calls with the places in the
// model's memory. Fills may run later than the call; finish() returns when all are done. One thread.
// Errors: kMissing for an absent tensor, kContent for a dtype or shape that does not fit the configuration, kLocal from reading.
#include <cstdint>
#include <string>

#include "dsf/base/result.h"

namespace dsf::serve::cuda {

enum class WeightForm { kF32, kBf16, kF16, kExl3 };

struct StoredLinear {
  WeightForm form = WeightForm::kF32;
  int bits = 0;  // of kExl3: codebook mul1, in and out multiples of 128
};

struct MatrixSize {
  int64_t out = 0, in = 0;
};
// What one rank keeps of a matrix: outputs and inputs, in multiples of 128 when it is packed.
struct MatrixPart {
  int64_t out_begin = 0, out_end = 0, in_begin = 0, in_end = 0;
  static MatrixPart all(const MatrixSize& s) { return {0, s.out, 0, s.in}; }
  int64_t out() const { return out_end - out_begin; }
  int64_t in() const { return in_end - in_begin; }
};

struct LoadReport {
  uint64_t bytes = 0;  // read from files
  double seconds = 0;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // A linear [out, in]. The form says how it will lie on the device.
  virtual Result<StoredLinear> describe(const std::string& name, int64_t out, int64_t in) = 0;
  // Whether a linear of groups (wo_a) stands as name.slice.{g}.
  virtual bool sliced(const std::string& name) = 0;

  // dense: the part [out, in] in the described form, times scale (1 unless the form is kF32).
  virtual Result<void> fill_dense(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, float scale, void* dense) = 0;
  // Of a packed matrix the part. lanes: the layout of exl3_decode.cuh; suh [part.in] and svh [part.out] fp16.
  virtual Result<void> fill_exl3(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, void* lanes, uint16_t* suh, uint16_t* svh) = 0;
  // A tensor of n values, as f32.
  virtual Result<void> fill_vector(const std::string& name, int64_t n, float* values) = 0;
  virtual Result<LoadReport> finish() = 0;
};

}  // namespace dsf::serve::cuda
