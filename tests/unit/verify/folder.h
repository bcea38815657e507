#pragma once
// A folder as dsf-verify meets it: two shards, an index, small files; a pin that describes it; and a runner without argv.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"
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
    REQUIRE(safetensors::write_file(dir / kShard1, std::vector<safetensors::TensorData>{{"a", DType::kF32, {2, 3}, std::vector<std::byte>(24)}, {"b", DType::kBF16, {4}, std::vector<std::byte>(8)}}));
    REQUIRE(safetensors::write_file(dir / kShard2, std::vector<safetensors::TensorData>{{"c", DType::kI8, {5}, std::vector<std::byte>(5)}}));
    REQUIRE(safetensors::write_index(dir / kIndex, std::vector<safetensors::IndexEntry>{{"a", kShard1}, {"b", kShard1}, {"c", kShard2}}, 37));
    REQUIRE(io::write_file_atomic(dir / "config.json", "{}\n"));
  }

  std::filesystem::path write_pin(bool complete = true) const {
    manifest::Pin pin;
    pin.name = "folder";
    pin.source.repo = "org/folder";
    pin.source.revision = std::string(40, 'a');
    pin.complete = complete;
    for (const char* name : {kShard1, kShard2, kIndex, "config.json"}) {
      manifest::PinFile f;
      f.path = name;
      f.size = *io::file_size(dir / name);
      f.sha256 = codec::sha256_file(dir / name)->hex();
      f.role = manifest::guess_role(name);
      pin.files.push_back(std::move(f));
    }
    pin.sort();
    const auto path = beside / "pin.json";
    REQUIRE(io::write_file_atomic(path, manifest::write(pin)));
    return path;
  }
};

struct Ran {
  int code;
  std::string out, err;
  bool says(const std::string& words) const { return err.find(words) != std::string::npos; }
  long lines() const { return std::count(err.begin(), err.end(), '\n'); }
};
inline Ran run_verify(const verify::RawOptions& raw) {
  std::ostringstream out, err;
  const auto plan = verify::make_plan(raw);
  if (!plan) return {static_cast<int>(plan.error().code), "", plan.error().line() + "\n"};
  const auto rc = verify::run(*plan, out, err);
  if (!rc) return {static_cast<int>(rc.error().code), out.str(), err.str() + rc.error().line() + "\n"};
  return {*rc, out.str(), err.str()};
}
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

inline void flip(const std::filesystem::path& file, uint64_t at) {
  const auto fd = io::open_write(file, true);
  REQUIRE(fd);
  std::byte b{};
  REQUIRE(io::read_at(*fd, at, {&b, 1}));
  b ^= std::byte{0x10};
  REQUIRE(io::write_at(*fd, at, {&b, 1}));
}

// A safetensors file from its header text and a number of zero data bytes.
inline std::string raw_file(const std::string& header, size_t data_bytes) {
  std::string out(8, '\0');
  store_le<uint64_t>(out.data(), header.size());
  return out + header + std::string(data_bytes, '\0');
}

}  // namespace dsf::test
