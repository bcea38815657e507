#include "dsf/engram/rows.h"

#include <cmath>
#include <filesystem>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/packed.h"
#include "dsf/engram/packed_writer.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"
#include "release.h"

using namespace dsf;
using namespace dsf::test;
using engram::CheckpointRows;
using engram::PackedRows;

namespace {

// Tables of the tiny layout with made bytes, written as a checkpoint; kinds chosen so that scales vary by block.
std::vector<std::byte> table_bytes(int64_t rows, int64_t width, uint32_t seed, int low, int span) {
  std::vector<std::byte> out;
  for (int64_t i = 0; i < rows * width; ++i) {
    seed = seed * 1664525u + 1013904223u;
    out.push_back(static_cast<std::byte>(low + static_cast<int>((seed >> 16) % static_cast<uint32_t>(span))));
  }
  return out;
}
struct Made {
  std::vector<std::byte> weights[2], scales[2];
};
Made write_tables(const std::filesystem::path& dir, const engram::Layout& l, bool apart = false) {
  Made made;
  std::vector<safetensors::IndexEntry> index;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t rows = l.layers()[i].rows;
    const std::string base = "layers." + std::to_string(l.layers()[i].layer_id) + ".engram.embed.";
    made.weights[i] = table_bytes(rows, 64, static_cast<uint32_t>(i + 1), 0, 256);
    made.scales[i] = table_bytes(rows, 2, static_cast<uint32_t>(i + 11), 100, 40);
    const safetensors::TensorData scale{base + "scale", tensor::DType::kF8E8M0, {rows, 2}, made.scales[i]};
    const safetensors::TensorData weight{base + "weight", tensor::DType::kF8E4M3, {rows, 64}, made.weights[i]};
    const std::string file = "t" + std::to_string(i) + ".safetensors", other = apart ? "s" + file : file;
    if (apart) {
      REQUIRE(safetensors::write_file(dir / file, std::vector{weight}));
      REQUIRE(safetensors::write_file(dir / other, std::vector{scale}));
    } else {
      REQUIRE(safetensors::write_file(dir / file, std::vector{scale, weight}));  // scale first, as one published file has it
    }
    index.push_back({base + "weight", file});
    index.push_back({base + "scale", other});
  }
  index.push_back({"embed.weight", "model-00001-of-00003.safetensors"});  // named, absent, not needed
  REQUIRE(safetensors::write_index(dir / "model.safetensors.index.json", index, 0));
  return made;
}
void pack(const std::filesystem::path& dir, const engram::Layout& l, const Made& made, int world) {
  for (size_t i = 0; i < 2; ++i)
    for (int rank = 0; rank < world; ++rank) {
      const auto expected = engram::expected_header(l, i, rank, world);
      REQUIRE(expected);
      const auto h = *expected;
      auto w = engram::PackedWriter::create(dir / engram::packed_file_name(l.layers()[i].layer_id, rank, world), h);
      REQUIRE(w);
      REQUIRE(w->append(std::span(made.weights[i]).subspan(h.lo * 64, (h.hi - h.lo) * 64), std::span(made.scales[i]).subspan(h.lo * 2, (h.hi - h.lo) * 2)));
      REQUIRE(w->finish());
    }
}

}  // namespace

TEST_CASE("dequantisation equals the published table of all 65536 scale and value pairs") {
  std::vector<uint16_t> table;
  for (int s = 0; s < 256; ++s)
    for (int b = 0; b < 256; b += 32) {
      std::vector<std::byte> record;
      for (int j = 0; j < 32; ++j) record.push_back(static_cast<std::byte>(b + j));
      record.push_back(static_cast<std::byte>(s));
      uint16_t out[32];
      engram::dequantize_row_bf16(record, out);
      table.insert(table.end(), out, out + 32);
    }
  CHECK(codec::sha256(std::as_bytes(std::span(table))).hex() == "ac4091794caec6f553a226c3857da2756d0b29c4c7b24e02ce61274a3df93185");
  CHECK(table[127 << 8 | 0x38] == 0x3F80);
  CHECK(table[118 << 8 | 0x08] == 0x3800);
}

TEST_CASE("rows gathered from the published pack fixture have the published digests") {
  const auto gathered = [](const std::vector<uint64_t>& rows) {
    std::vector<uint16_t> all;
    for (const uint64_t row : rows) {
      std::vector<std::byte> record;
      for (uint64_t j = 0; j < 264; ++j) record.push_back(fixture_byte(row, j));
      std::vector<uint16_t> out(256);
      engram::dequantize_row_bf16(record, out);
      all.insert(all.end(), out.begin(), out.end());
    }
    return codec::sha256(std::as_bytes(std::span(all))).hex();
  };
  CHECK(gathered({1000, 1001, 1001, 3999, 1007, 2500, 1007}) == "82b5fc83bc4eb5195c2d36925f57ef8af91663ed60af344641924535b8dc25b4");
  std::vector<uint64_t> strided, down;
  for (uint64_t k = 0; k < 96; ++k) strided.push_back(1000 + k * 977 % 3000);
  for (uint64_t r = 1259; r >= 1200; --r) down.push_back(r);
  CHECK(gathered(strided) == "6a0439b98aad93e03a744b515286f8041b7567bd09e15a2f1e358e00b4950199");
  CHECK(gathered(down) == "f8ef91955c85ec1ba1caa46f4116ddc94cea8204c72f97670292cbb9d8ce82b5");
}

TEST_CASE("checkpoint and packed files give the same rows, whole or split, weight and scale together or apart") {
  const engram::Layout l = tiny_layout();
  TempDir source, packs;
  const Made made = write_tables(source.path(), l);
  pack(packs.path(), l, made, 1);
  pack(packs.path(), l, made, 3);
  const auto checkpoint = CheckpointRows::open(source.path(), l);
  const auto whole = PackedRows::open(packs.path(), l, {.world = 1});
  const auto split = PackedRows::open(packs.path(), l, {.world = 3, .all_ranks = true});
  REQUIRE(checkpoint);
  REQUIRE(whole);
  REQUIRE(split);
  for (size_t layer = 0; layer < 2; ++layer) {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < l.layers()[layer].rows; ++r) rows.push_back((r * 17) % l.layers()[layer].rows);
    std::vector<float> a(rows.size() * 64), b(a.size()), c(a.size());
    REQUIRE((*checkpoint)->gather(layer, rows, a));
    REQUIRE((*whole)->gather(layer, rows, b));
    REQUIRE((*split)->gather(layer, rows, c));
    CHECK(std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
    CHECK(std::memcmp(a.data(), c.data(), a.size() * 4) == 0);
    const auto at = static_cast<size_t>(rows[5]);
    std::vector<std::byte> record(made.weights[layer].begin() + static_cast<std::ptrdiff_t>(at * 64), made.weights[layer].begin() + static_cast<std::ptrdiff_t>(at * 64 + 64));
    record.push_back(made.scales[layer][at * 2]);
    record.push_back(made.scales[layer][at * 2 + 1]);
    std::vector<float> want(64);
    engram::dequantize_row(record, want);
    CHECK(std::memcmp(want.data(), a.data() + 5 * 64, 256) == 0);
  }
  TempDir apart;
  write_tables(apart.path(), l, true);
  const auto other = CheckpointRows::open(apart.path(), l);
  REQUIRE(other);
  CHECK((*other)->files().size() == 4);
  std::vector<float> a(64), b(64);
  REQUIRE((*checkpoint)->gather(1, std::vector<int64_t>{629}, a));
  REQUIRE((*other)->gather(1, std::vector<int64_t>{629}, b));
  CHECK(std::memcmp(a.data(), b.data(), 256) == 0);
}

TEST_CASE("a rank reads its own rows and says so about others") {
  const engram::Layout l = tiny_layout();
  TempDir packs, source;
  pack(packs.path(), l, write_tables(source.path(), l), 2);
  const auto r1 = PackedRows::open(packs.path(), l, {.world = 2, .rank = 1});
  REQUIRE(r1);
  const auto mine = (*r1)->owned(0);
  CHECK(mine == *l.rank_rows(0, 1, 2));
  std::vector<float> out(64);
  CHECK((*r1)->gather(0, std::vector<int64_t>{mine.begin}, out));
  const auto other = (*r1)->gather(0, std::vector<int64_t>{mine.begin - 1}, out);
  REQUIRE(!other);
  CHECK(other.error().code == Code::kUsage);
  CHECK(!(*r1)->gather(0, std::vector<int64_t>{-1}, out));
}

TEST_CASE("packed files of another rank, world, layer or size are refused at open") {
  const engram::Layout l = tiny_layout();
  TempDir packs, source;
  const Made made = write_tables(source.path(), l);
  pack(packs.path(), l, made, 2);
  const auto name = [](int layer, int rank) { return engram::packed_file_name(layer, rank, 2); };
  const auto opened = [&] { return PackedRows::open(packs.path(), l, {.world = 2, .rank = 0}); };
  REQUIRE(opened());
  const auto keep = *io::read_text(packs / name(1, 0));

  std::filesystem::copy_file(packs / name(1, 1), packs / name(1, 0), std::filesystem::copy_options::overwrite_existing);
  CHECK(opened().error().cls == "header");
  std::filesystem::copy_file(packs / name(4, 0), packs / name(1, 0), std::filesystem::copy_options::overwrite_existing);
  CHECK(opened().error().cls == "header");
  REQUIRE(io::write_file_atomic(packs / name(1, 0), keep.substr(0, keep.size() - 1)));
  CHECK(opened().error().cls == "size");
  REQUIRE(io::write_file_atomic(packs / name(1, 0), keep.substr(0, 100)));
  CHECK(opened().error().cls == "size");
  REQUIRE(io::remove_file(packs / name(1, 0)));
  CHECK(opened().error().code == Code::kMissing);
  CHECK(opened().error().fix.find("dsf-pack-engram") != std::string::npos);
}

TEST_CASE("a source without tables, with a wrong shape or a wrong type is refused by name") {
  const engram::Layout l = tiny_layout();
  TempDir dir;
  CHECK(CheckpointRows::open(dir / "absent", l).error().code == Code::kMissing);
  CHECK(CheckpointRows::open(dir.path(), l).error().code == Code::kMissing);
  write_tables(dir.path(), l);
  engram::Spec wide = tiny_spec();
  wide.head_dim = 128;
  const auto other = CheckpointRows::open(dir.path(), *engram::Layout::create(wide));
  REQUIRE(!other);
  CHECK(other.error().code == Code::kContent);
  CHECK(other.error().what.find("layers.1.engram.embed.weight") != std::string::npos);
  REQUIRE(io::remove_file(dir / "t1.safetensors"));
  CHECK(CheckpointRows::open(dir.path(), l).error().code == Code::kMissing);
  REQUIRE(io::remove_file(dir / "model.safetensors.index.json"));
  CHECK(CheckpointRows::open(dir.path(), l).error().what.find("layers.4") != std::string::npos);
}

TEST_CASE("the tiny golden model's tables open and dequantise to finite values") {
  if (shared_data().empty()) return skip("tiny golden tables", "shared data not present");
  const auto rows = CheckpointRows::open(shared_data() / "tiny_v41", tiny_layout());
  REQUIRE(rows);
  std::vector<float> out(462 * 64);
  std::vector<int64_t> ids(462);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  REQUIRE((*rows)->gather(0, ids, out));
  for (const float v : out) REQUIRE(std::isfinite(v));
}
