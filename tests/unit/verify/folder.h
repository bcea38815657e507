#pragma once
// A folder as dsf-verify meets it: two shards, an index, small files; a pin that describes it; and a runner without
// argv.
#include <filesystem>
#include <string>
#include <vector>

#include "dsf/base/numeric.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/folders.h"
#include "tools/verify/run.h"

namespace dsf::test {

inline constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
inline constexpr const char* kShard2 = "model-00002-of-00002.safetensors";
inline constexpr const char* kIndex = "model.safetensors.index.json";

struct Folder {
  TempDir dir;
  TempDir beside;  // pins and reports

  Folder() {
    using tensor::DType;
    REQUIRE(safetensors::write_file(
        dir / kShard1, std::vector<safetensors::TensorData>{{"a", DType::kF32, {2, 3}, std::vector<std::byte>(24)},
                                                            {"b", DType::kBF16, {4}, std::vector<std::byte>(8)}}));
    REQUIRE(safetensors::write_file(
        dir / kShard2, std::vector<safetensors::TensorData>{{"c", DType::kI8, {5}, std::vector<std::byte>(5)}}));
    REQUIRE(safetensors::write_index(
        dir / kIndex, std::vector<safetensors::IndexEntry>{{"a", kShard1}, {"b", kShard1}, {"c", kShard2}}, 37));
    REQUIRE(io::write_file_atomic(dir / "config.json", "{}\n"));
  }

  std::filesystem::path write_pin(bool complete = true) const {
    manifest::Pin pin = pin_of(dir.path());
    pin.complete = complete;
    return test::write_pin(pin, beside / "pin.json");
  }
};

inline Ran run_verify(const verify::RawOptions& raw) { return run_plan(verify::make_plan(raw), verify::run); }
inline verify::RawOptions verifying(const Folder& f) {
  verify::RawOptions raw;
  raw.dir = f.dir.path();
  return raw;
}
inline verify::RawOptions against_pin(const Folder& f) {
  verify::RawOptions raw = verifying(f);
  raw.common.pin = f.write_pin();
  return raw;
}

// A safetensors file from its header text and a number of zero data bytes.
inline std::string raw_file(const std::string& header, size_t data_bytes) {
  std::string out(8, '\0');
  store_le<uint64_t>(out.data(), header.size());
  return out + header + std::string(data_bytes, '\0');
}

}  // namespace dsf::test
