#include "dsf/engram/rows.h"
#include "dsf/json/json.h"
#include "made_source.h"

using namespace dsf;
using namespace dsf::test;

namespace {
// What a packed file must hold, from the tables' bytes: the format written out a second time.
std::string expected_file(size_t layer_index, uint64_t lo, uint64_t hi) {
  const uint64_t rows = layer_index == 0 ? 462 : 630, layer = layer_index == 0 ? 1 : 4;
  const auto weight = made_bytes(static_cast<int64_t>(rows * 64), 10 + static_cast<uint32_t>(layer_index));
  const auto scale = made_bytes(static_cast<int64_t>(rows * 2), 20 + static_cast<uint32_t>(layer_index));
  std::string out = "DSV1EN41";
  for (const uint64_t word : {layer, lo, hi, rows, uint64_t{66}})
    for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(word >> shift));
  out.resize(4096, '\0');
  for (uint64_t r = lo; r < hi; ++r) {
    for (uint64_t j = 0; j < 64; ++j) out.push_back(static_cast<char>(weight[r * 64 + j]));
    for (uint64_t j = 0; j < 2; ++j) out.push_back(static_cast<char>(scale[r * 2 + j]));
  }
  return out;
}
}  // namespace

TEST_CASE("packed files are byte for byte the format, for one rank and for an uneven split") {
  const MadeSource source;
  TempDir out;
  const Ran one = run_pack(packing(source, out.path()));
  CHECK_MESSAGE(one.code == 0, one.err);
  CHECK(*io::read_text(out / "engram-l1-r0of1.bin") == expected_file(0, 0, 462));
  CHECK(*io::read_text(out / "engram-l4-r0of1.bin") == expected_file(1, 0, 630));
  // Columns 67+71+73+79, then 83+89: four heads and two.
  const Ran split = run_pack(packing(source, out.path(), "all", 3));
  CHECK(split.code == 0);
  CHECK(*io::read_text(out / "engram-l1-r0of3.bin") == expected_file(0, 0, 138));
  CHECK(*io::read_text(out / "engram-l1-r1of3.bin") == expected_file(0, 138, 290));
  CHECK(*io::read_text(out / "engram-l1-r2of3.bin") == expected_file(0, 290, 462));
  CHECK(leftovers(out.path()).empty());
}

TEST_CASE("a second run finds everything right and writes nothing") {
  const MadeSource source;
  TempDir out;
  REQUIRE(run_pack(packing(source, out.path())).code == 0);
  const auto before = std::filesystem::last_write_time(out / "engram-l1-r0of1.bin");
  const auto record = *io::read_text(out / "engram-r0of1.json");
  const Ran again = run_pack(packing(source, out.path()));
  CHECK(again.code == 0);
  CHECK(again.out.find("kept") != std::string::npos);
  CHECK(std::filesystem::last_write_time(out / "engram-l1-r0of1.bin") == before);
  CHECK(*io::read_text(out / "engram-r0of1.json") == record);
  pack_engram::RawOptions forced = packing(source, out.path());
  forced.force = true;
  CHECK(run_pack(forced).out.find("packed") != std::string::npos);
}

TEST_CASE("a file of the right size with wrong content is packed again, not kept") {
  const MadeSource source;
  TempDir out;
  REQUIRE(run_pack(packing(source, out.path())).code == 0);
  flip(out / "engram-l4-r0of1.bin", 4096 + 66 * 400);
  const Ran again = run_pack(packing(source, out.path()));
  CHECK(again.code == 0);
  CHECK(*io::read_text(out / "engram-l4-r0of1.bin") == expected_file(1, 0, 630));
}

TEST_CASE("a killed run's temporary files go, other files stay") {
  const MadeSource source;
  TempDir out;
  REQUIRE(io::write_file_atomic(out / ".engram-l1-r0of1.bin.99.0.tmp", "half"));
  REQUIRE(run_pack(packing(source, out.path())).code == 0);
  CHECK(leftovers(out.path()).empty());
}

TEST_CASE("dry run writes nothing, not even the folder") {
  const MadeSource source;
  TempDir out;
  auto raw = packing(source, out / "new");
  raw.common.dry_run = true;
  const Ran ran = run_pack(raw);
  CHECK(ran.code == 0);
  CHECK(ran.out.find("would_pack") != std::string::npos);
  CHECK(!std::filesystem::exists(out / "new"));
}

TEST_CASE("another process at work in the folder is code 7") {
  const MadeSource source;
  TempDir out;
  const auto lock = io::FileLock::acquire(out / ".dsf-pack-engram.lock");
  REQUIRE(lock);
  CHECK(run_pack(packing(source, out.path())).code == 7);
}

TEST_CASE("the record names what was read and every block's digest") {
  const MadeSource source;
  TempDir out;
  REQUIRE(run_pack(packing(source, out.path())).code == 0);
  const auto text = io::read_text(out / "engram-r0of1.json");
  REQUIRE(text);
  const auto root = json::parse(*text, "record");
  REQUIRE(root);
  const json::Cursor c(*root, "record");
  CHECK(*c.string_at("schema") == "engram-pack");
  CHECK(root->find("inputs")->as_array().size() == 4);
  CHECK(root->find("inputs")->as_array()[0].find("sha256")->as_string().size() == 64);
  const json::Value& item = root->find("items")->as_array()[1];
  CHECK(item.find("hi")->to_u64() == 630);
  CHECK(item.find("block_sha256")->as_array().size() == 1);
  CHECK(item.find("tree_sha256")->as_string().size() == 64);
  CHECK(text->find(source.dir.path().string()) == std::string::npos);  // records travel; folders do not
}

TEST_CASE("a source that is not right is refused with its exit code and leaves no packed file") {
  TempDir out;
  const auto refused = [&](auto breakage, int code, const char* words) {
    const MadeSource source;
    breakage(source);
    const Ran ran = run_pack(packing(source, out / "packs"));
    INFO(ran.err);
    CHECK(ran.code == code);
    CHECK(ran.err.find(words) != std::string::npos);
    CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
    CHECK(!std::filesystem::exists(out / "packs" / "engram-l1-r0of1.bin"));
  };
  refused([](const MadeSource& s) { std::filesystem::remove(s.dir / "config.json"); }, 5, "config.json");
  refused([](const MadeSource& s) { replace_text(s.dir / "config.json", "[462, 630]", "[462, 631]"); }, 2,
          "engram_num_embeddings");
  refused(
      [](const MadeSource& s) {
        replace_text(s.dir / "config.json", "\"engram_head_dim\": 64", "\"engram_head_dim\": 96");
      },
      8, "config.json needs");
  refused(
      [](const MadeSource& s) {
        replace_text(s.dir / "config.json", "\"engram_layer_ids\": [1, 4]", "\"engram_layer_ids\": [1, 3]");
      },
      5, "layers.3.engram");
  refused([](const MadeSource& s) { std::filesystem::remove(s.shard[1]); }, 5, "model-00003");
  refused([](const MadeSource& s) { cut(s.shard[0], 1); }, 8, "truncated");
  refused([](const MadeSource& s) { flip(s.shard[0], 7); }, 8, "header length");
  refused(
      [](const MadeSource& s) {
        std::filesystem::remove(s.dir / "model.safetensors.index.json");
        std::filesystem::remove(s.shard[0]);
        std::filesystem::remove(s.shard[1]);
      },
      5, "no safetensors");
}

TEST_CASE("a world in which a rank would own nothing is a usage error") {
  const MadeSource source;
  TempDir out;
  CHECK(run_pack(packing(source, out.path(), "0", 4)).code == 2);
}

TEST_CASE("the packed reader accepts what the packer wrote") {
  const MadeSource source;
  TempDir out;
  REQUIRE(run_pack(packing(source, out.path(), "all", 2)).code == 0);
  const auto layout = engram::Layout::create({.layer_ids = {1, 4},
                                              .num_embeddings = {462, 630},
                                              .hash_vocab_size = 64,
                                              .max_ngram_size = 4,
                                              .n_heads = 2,
                                              .head_dim = 64,
                                              .pad_token_id = 2,
                                              .compressed_vocab_size = 200,
                                              .vocab_size = 256});
  REQUIRE(layout);
  CHECK(engram::PackedRows::open(out.path(), *layout, {.world = 2, .rank = 1}));
  CHECK(engram::PackedRows::open(out.path(), *layout, {.world = 2, .all_ranks = true}));
}
