#include "tools/pack-engram/recombine.h"

#include "dsf/base/numeric.h"
#include "made_source.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// The derived single-layer file, written out a second time from the tables' bytes.
std::string table_sha256(size_t layer_index) {
  const int64_t rows = layer_index == 0 ? 462 : 630;
  const auto seed = static_cast<uint32_t>(layer_index);
  const auto scales = made_bytes(rows * 2, 20 + seed), weights = made_bytes(rows * 64, 10 + seed);
  std::string file = pack_engram::derived_prefix(layer_index == 0 ? 1 : 4, static_cast<uint64_t>(rows), 64);
  file += as_text(scales);
  file += as_text(weights);
  return codec::sha256(file).hex();
}

pack_engram::RawOptions recombining(const std::filesystem::path& packs, int64_t world) {
  pack_engram::RawOptions raw;
  raw.check = packs;
  raw.world_size = world;
  raw.recombine = true;
  return raw;
}

}  // namespace

TEST_CASE("the derived headers of the release's tables are the published ones") {
  const auto digest = [](uint64_t layer, uint64_t rows) {
    const std::string prefix = pack_engram::derived_prefix(layer, rows, 256);
    CHECK(load_le<uint64_t>(prefix.data()) == 256);
    return codec::sha256(std::string_view(prefix).substr(8)).hex();
  };
  CHECK(digest(1, 384006168) == "cd5424127420980f1ca8923e4af7781cd4207592423d6b49f5dbdf2b5ec7e335");
  CHECK(digest(14, 384016682) == "98a81d9b832e597f6d1e0dd100cfdca49b2808b4a1f8919aa81c95f77d77c737");
}

TEST_CASE("packs of any split give the digest of the whole table") {
  const MadeSource source;
  for (const int64_t world : {1, 2, 3}) {
    TempDir out;
    REQUIRE(run_pack(packing(source, out.path(), "all", world)).code == 0);
    auto raw = recombining(out.path(), world);
    const Ran ran = run_pack(raw);
    INFO(ran.err, ran.out);
    CHECK(ran.code == 0);
    CHECK(ran.prints("layer 1: " + table_sha256(0)));
    CHECK(ran.prints("layer 4: " + table_sha256(1)));
    CHECK(ran.prints("not checked: nothing to compare with"));
    raw.expect = {"1=" + table_sha256(0), "4=" + table_sha256(1)};
    CHECK(run_pack(raw).code == 0);
    flip(out / ("engram-l4-r0of" + std::to_string(world) + ".bin"), 4096 + 70);
    const Ran wrong = run_pack(raw);
    CHECK(wrong.code == 1);
    CHECK(wrong.lines() == 1);
    CHECK(wrong.says("layer 4: the whole table's sha256 is"));
  }
}

TEST_CASE("files of other splits, missing ranks and wrong uses are refused") {
  const MadeSource source;
  TempDir out;
  REQUIRE(run_pack(packing(source, out.path(), "all", 2)).code == 0);
  CHECK(run_pack(recombining(out.path(), 3)).code == 5);
  std::filesystem::remove(out / "engram-l1-r1of2.bin");
  CHECK(run_pack(recombining(out.path(), 2)).code == 5);
  std::filesystem::copy_file(out / "engram-l1-r0of2.bin", out / "engram-l1-r1of2.bin");
  const Ran twice = run_pack(recombining(out.path(), 2));
  CHECK(twice.code == 8);
  CHECK(twice.says("comes next"));
  auto raw = recombining(out.path(), 2);
  raw.expect = {"1=abc"};
  CHECK(run_pack(raw).code == 2);
  raw = recombining("", 2);
  CHECK(run_pack(raw).code == 2);
  raw = recombining(out.path(), 2);
  raw.sample = 3;
  CHECK(run_pack(raw).code == 2);
}

TEST_CASE("without a source a sample is of blocks, first and last included") {
  const MadeSource source(MadeSource::Size::kBlocks);
  TempDir out;
  REQUIRE(run_pack(packing(source, out.path())).code == 0);
  pack_engram::RawOptions raw;
  raw.check = out.path();
  raw.sample = 2;
  raw.seed = 1;
  const Ran some = run_pack(raw);
  CHECK_MESSAGE(some.code == 0, some.err);
  CHECK(some.prints("109120 of 240192 rows compared"));  // 65536 and the last 43584
  flip(out / "engram-l1-r0of1.bin", std::filesystem::file_size(out / "engram-l1-r0of1.bin") - 1);
  CHECK(run_pack(raw).code == 1);
}
