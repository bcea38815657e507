#include "dsf/exl3/matrix.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"

namespace dsf::exl3 {
namespace {

using safetensors::Checkpoint;
using safetensors::TensorView;
using tensor::DType;

Unexpected bad(const Checkpoint& checkpoint, const std::string& name, std::string what) {
  const safetensors::File* file = checkpoint.file_of(name);
  return fail(Code::kContent, (file ? file->path() : checkpoint.dir()).string(), name + ": " + std::move(what),
              "fetch the file again, or repair the pack that wrote it", "exl3_malformed");
}

Result<TensorView> typed(const Checkpoint& checkpoint, const std::string& name, DType dtype, size_t rank) {
  DSF_TRY(TensorView view, checkpoint.tensor(name));
  if (view.dtype() != dtype || view.shape().size() != rank) {
    return bad(checkpoint, name,
               "want " + std::string(tensor::dtype_name(dtype)) + " of rank " + std::to_string(rank) + ", got " +
                   std::string(tensor::dtype_name(view.dtype())) + " " + tensor::shape_text(view.shape()));
  }
  return view;
}

// Scales with the length of their axis, and every one finite: one infinity would become NaN everywhere behind the
// Hadamard.
Result<TensorView> scales(const Checkpoint& checkpoint, const std::string& name, int64_t length) {
  DSF_TRY(TensorView view, typed(checkpoint, name, DType::kF16, 1));
  if (view.shape()[0] != length) {
    return bad(checkpoint, name, "want " + std::to_string(length) + " values, got " + tensor::shape_text(view.shape()));
  }
  for (size_t i = 0; i < view.bytes.size(); i += 2) {
    if ((load_le<uint16_t>(view.bytes.data() + i) & 0x7c00u) == 0x7c00u) {
      return bad(checkpoint, name, "value " + std::to_string(i / 2) + " is not finite");
    }
  }
  return view;
}

Result<void> check_marker(const Checkpoint& checkpoint, const std::string& name, uint32_t want) {
  DSF_TRY(TensorView view, typed(checkpoint, name, DType::kI32, 0));
  const auto value = load_le<uint32_t>(view.bytes.data());
  if (value != want) {
    return bad(checkpoint, name,
               "marker is " + std::to_string(static_cast<int32_t>(value)) + ", want " +
                   std::to_string(static_cast<int32_t>(want)));
  }
  return {};
}

// The codebook from the marker that is present. A wrong codebook never fails later, it only answers nonsense: fail
// closed here.
Result<Codebook> codebook_of(const Checkpoint& checkpoint, const std::string& p) {
  const bool mul1 = checkpoint.contains(p + ".mul1");
  const bool mcg = checkpoint.contains(p + ".mcg");
  if (mul1 && mcg) return bad(checkpoint, p + ".mcg", "stands beside .mul1; a matrix has one codebook");
  if (mul1) {
    DSF_OK(check_marker(checkpoint, p + ".mul1", kMul1Multiplier));
    return Codebook::kMul1;
  }
  if (mcg) {
    DSF_OK(check_marker(checkpoint, p + ".mcg", kMcgMultiplier));
    return Codebook::kMcg;
  }
  return Codebook::k3Inst;
}

Result<void> refuse_other_forms(const Checkpoint& checkpoint, const std::string& p) {
  for (const char* part : {".su", ".sv"}) {
    if (checkpoint.contains(p + part)) return bad(checkpoint, p + part, "packed sign vectors are not supported");
  }
  if (checkpoint.contains(p + ".bias"))
    return bad(checkpoint, p + ".bias", "packed matrices with a bias are not supported");
  if (checkpoint.contains(p + ".scale")) return bad(checkpoint, p + ".scale", "belongs to another weight format");
  return {};
}

bool block_range(int64_t first, int64_t last, int64_t size) {
  return first >= 0 && first < last && last <= size && first % kBlock == 0 && last % kBlock == 0;
}

Unexpected bad_range(int64_t first, int64_t last, int64_t size) {
  return fail(Code::kUsage, "exl3 split",
              "range [" + std::to_string(first) + ", " + std::to_string(last) + ") of " + std::to_string(size) +
                  " does not lie on 128-blocks",
              "choose a world size that splits the axis into whole 128-blocks");
}

std::vector<uint16_t> copy_words(std::span<const std::byte> bytes) {
  std::vector<uint16_t> words(bytes.size() / 2);
  std::memcpy(words.data(), bytes.data(), words.size() * 2);
  return words;
}

std::vector<std::byte> copy_bytes(std::span<const uint16_t> words) {
  const auto bytes = std::as_bytes(words);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::string_view codebook_name(Codebook c) {
  switch (c) {
    case Codebook::k3Inst:
      return "3inst";
    case Codebook::kMcg:
      return "mcg";
    case Codebook::kMul1:
      return "mul1";
  }
  return "?";
}

PackedMatrix Matrix::view() const {
  return {in,
          out,
          bits,
          codebook,
          std::as_bytes(std::span(trellis)),
          std::as_bytes(std::span(suh)),
          std::as_bytes(std::span(svh))};
}

bool is_packed(const Checkpoint& checkpoint, std::string_view name) {
  return checkpoint.contains(std::string(name) + ".trellis");
}

Result<PackedMatrix> open(const Checkpoint& checkpoint, std::string_view name) {
  const std::string p(name);
  DSF_OK(refuse_other_forms(checkpoint, p));
  DSF_TRY(TensorView trellis, typed(checkpoint, p + ".trellis", DType::kI16, 3));
  const tensor::Shape& shape = trellis.shape();
  // 8 tiles of 16 make one Hadamard block. The header check has bounded the product of the shape by the file size.
  if (shape[0] <= 0 || shape[1] <= 0 || shape[0] % 8 != 0 || shape[1] % 8 != 0) {
    return bad(checkpoint, p + ".trellis", "shape " + tensor::shape_text(shape) + " is not whole 128 x 128 blocks");
  }
  if (shape[2] % 16 == 8) return bad(checkpoint, p + ".trellis", "half-integer widths are not supported");
  if (shape[2] % 16 != 0 || shape[2] < 16 || shape[2] > 16 * kMaxBits) {
    return bad(checkpoint, p + ".trellis", "shape " + tensor::shape_text(shape) + " has no width of 1 to 8 bits");
  }
  PackedMatrix m;
  m.in = shape[0] * kTile;
  m.out = shape[1] * kTile;
  m.bits = static_cast<int>(shape[2] / 16);
  m.trellis = trellis.bytes;
  DSF_TRY(m.codebook, codebook_of(checkpoint, p));
  DSF_TRY(TensorView suh, scales(checkpoint, p + ".suh", m.in));
  DSF_TRY(TensorView svh, scales(checkpoint, p + ".svh", m.out));
  m.suh = suh.bytes;
  m.svh = svh.bytes;
  return m;
}

Result<PackedMatrix> open(const Checkpoint& checkpoint, std::string_view name, int64_t out, int64_t in) {
  DSF_TRY(PackedMatrix m, open(checkpoint, name));
  if (m.out != out || m.in != in) {
    return bad(checkpoint, std::string(name) + ".trellis",
               "holds " + std::to_string(m.in) + " inputs and " + std::to_string(m.out) +
                   " outputs, the configuration wants " + std::to_string(in) + " and " + std::to_string(out));
  }
  return m;
}

Result<Matrix> slice_columns(const PackedMatrix& m, int64_t first, int64_t last) {
  if (!block_range(first, last, m.out)) return bad_range(first, last, m.out);
  Matrix part{m.in, last - first, m.bits, m.codebook, {}, copy_words(m.suh), {}};
  part.svh = copy_words(m.svh.subspan(static_cast<size_t>(first) * 2, static_cast<size_t>(last - first) * 2));
  const auto tiles = static_cast<size_t>((last - first) / kTile);
  part.trellis.resize(static_cast<size_t>(m.in / kTile) * tiles * m.tile_bytes() / 2);
  auto* to = reinterpret_cast<std::byte*>(part.trellis.data());
  for (int64_t kt = 0; kt < m.in / kTile; ++kt) {
    std::memcpy(to, m.tile(kt, first / kTile).data(), tiles * m.tile_bytes());
    to += tiles * m.tile_bytes();
  }
  return part;
}

Result<Matrix> slice_rows(const PackedMatrix& m, int64_t first, int64_t last) {
  if (!block_range(first, last, m.in)) return bad_range(first, last, m.in);
  Matrix part{last - first, m.out, m.bits, m.codebook, {}, {}, copy_words(m.svh)};
  part.suh = copy_words(m.suh.subspan(static_cast<size_t>(first) * 2, static_cast<size_t>(last - first) * 2));
  const size_t row_bytes = static_cast<size_t>(m.out / kTile) * m.tile_bytes();
  part.trellis = copy_words(m.trellis.subspan(static_cast<size_t>(first / kTile) * row_bytes,
                                              static_cast<size_t>((last - first) / kTile) * row_bytes));
  return part;
}

std::vector<safetensors::TensorData> to_tensors(const Matrix& m, std::string_view name) {
  const std::string p(name);
  std::vector<safetensors::TensorData> parts;
  parts.push_back({p + ".trellis", DType::kI16, {m.in / kTile, m.out / kTile, 16 * m.bits}, copy_bytes(m.trellis)});
  parts.push_back({p + ".suh", DType::kF16, {m.in}, copy_bytes(m.suh)});
  parts.push_back({p + ".svh", DType::kF16, {m.out}, copy_bytes(m.svh)});
  if (m.codebook != Codebook::k3Inst) {
    const uint32_t marker = m.codebook == Codebook::kMul1 ? kMul1Multiplier : kMcgMultiplier;
    std::vector<std::byte> bytes(sizeof marker);
    store_le(bytes.data(), marker);
    parts.push_back({p + "." + std::string(codebook_name(m.codebook)), DType::kI32, {}, std::move(bytes)});
  }
  return parts;
}

}  // namespace dsf::exl3
