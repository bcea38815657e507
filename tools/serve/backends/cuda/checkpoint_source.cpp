#include "tools/serve/backends/cuda/checkpoint_source.h"

#include <algorithm>
#include <bit>

#include "dsf/exl3/matrix.h"
#include "dsf/model/router.h"

namespace dsf::serve::cuda {
namespace {

using tensor::DType;

std::optional<WeightForm> copied_as(DType type) {
  switch (type) {
    case DType::kBF16: return WeightForm::kBf16;
    case DType::kF16: return WeightForm::kF16;
    case DType::kF32: return WeightForm::kF32;
    default: return std::nullopt;
  }
}

// The upper halves of values that bf16 holds exactly.
Result<std::vector<uint16_t>> to_bf16(const std::string& name, const Vec& values) {
  std::vector<uint16_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    if ((bits & 0xffffu) != 0) return fail(Code::kContent, name, "has weights that bf16 does not hold", "check the checkpoint's scales");
    out[i] = static_cast<uint16_t>(bits >> 16);
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> CheckpointSource::open(const safetensors::Checkpoint& checkpoint, const model::Config& config, const gpu::Facts& facts,
                                                                 const CheckpointSourceOptions& options) {
  for (const model::RouterPlace& place : model::router_places(config))
    if (!place.draft) DSF_OK(model::attach_router(checkpoint, nullptr, place, config.hidden_size));
  std::unique_ptr<CheckpointSource> out(new CheckpointSource(checkpoint, facts, options));
  DSF_TRY(out->stream_, gpu::Stream::create());
  return out;
}

Result<StoredLinear> CheckpointSource::describe(const std::string& name, int64_t out, int64_t in) {
  if (exl3::is_packed(checkpoint_, name)) {
    DSF_TRY(const exl3::PackedMatrix m, exl3::open(checkpoint_, name, out, in));
    if (options_.dequantise || m.codebook != exl3::Codebook::kMul1) return StoredLinear{WeightForm::kF32, 0};
    return StoredLinear{WeightForm::kExl3, m.bits};
  }
  DSF_TRY(const safetensors::TensorView weight, checkpoint_.tensor(name + ".weight"));
  return StoredLinear{copied_as(weight.dtype()).value_or(WeightForm::kBf16), 0};
}

bool CheckpointSource::sliced(const std::string& name) { return exl3::is_packed(checkpoint_, name + ".slice.0"); }

Result<void> CheckpointSource::fill_dense(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, float scale, void* dense) {
  const std::string tensor = name + ".weight";
  if (scale == 1 && part.in() == whole.in && checkpoint_.contains(tensor) && !checkpoint_.contains(name + ".scale")) {
    DSF_TRY(const safetensors::TensorView view, checkpoint_.tensor(tensor));
    const uint64_t row = static_cast<uint64_t>(whole.in) * (stored.form == WeightForm::kF32 ? 4 : 2);
    if (copied_as(view.dtype()) == stored.form && view.shape() == tensor::Shape{whole.out, whole.in})
      return copy_tensor(tensor, dense, row * static_cast<uint64_t>(part.out_begin), row * static_cast<uint64_t>(part.out()));
  }
  DSF_TRY(const Linear l, reader_.linear(name, whole.out, whole.in));
  Vec values;
  values.reserve(static_cast<size_t>(part.out() * part.in()));
  for (int64_t out = part.out_begin; out < part.out_end; ++out)
    for (int64_t in = part.in_begin; in < part.in_end; ++in) values.push_back(scale * l.w[static_cast<size_t>(out * whole.in + in)]);
  if (stored.form == WeightForm::kF32) return upload(dense, values.data(), values.size() * sizeof(float));
  if (stored.form != WeightForm::kBf16) return fail(Code::kContent, tensor, "is not [" + std::to_string(whole.out) + ", " + std::to_string(whole.in) + "]");
  DSF_TRY(const std::vector<uint16_t> bf16, to_bf16(name, values));
  return upload(dense, bf16.data(), bf16.size() * sizeof(uint16_t));
}

Result<void> CheckpointSource::fill_exl3(const std::string& name, const MatrixSize& whole, const MatrixPart& part, StoredLinear stored, void* lanes, uint16_t* suh,
                                         uint16_t* svh) {
  const std::string trellis = name + ".trellis";
  const safetensors::File* file = checkpoint_.file_of(trellis);
  DSF_TRY(const safetensors::TensorView view, checkpoint_.tensor(trellis));
  DSF_OK(files_.repack(file->path(), file->header().data_offset + view.info->begin, whole, part, stored.bits, lanes));
  DSF_OK(copy_tensor(name + ".suh", suh, 2 * static_cast<uint64_t>(part.in_begin), 2 * static_cast<uint64_t>(part.in())));
  return copy_tensor(name + ".svh", svh, 2 * static_cast<uint64_t>(part.out_begin), 2 * static_cast<uint64_t>(part.out()));
}

Result<void> CheckpointSource::fill_vector(const std::string& name, int64_t n, float* values) {
  DSF_TRY(const Vec v, reader_.vector(name, n));
  return upload(values, v.data(), v.size() * sizeof(float));
}

Result<LoadReport> CheckpointSource::finish() { return files_.run(); }

Result<void> CheckpointSource::copy_tensor(const std::string& name, void* to, uint64_t first, uint64_t n) {
  DSF_TRY(const safetensors::TensorView view, checkpoint_.tensor(name));
  const safetensors::File* file = checkpoint_.file_of(name);
  return files_.copy(file->path(), file->header().data_offset + view.info->begin + first, n != 0 ? n : view.info->n_bytes() - first, to);
}

Result<void> CheckpointSource::upload(void* to, const void* from, size_t bytes) {
  DSF_OK(gpu::copy_to_device(stream_, to, from, bytes));
  return stream_.wait();  // the host memory goes away
}

}  // namespace dsf::serve::cuda
