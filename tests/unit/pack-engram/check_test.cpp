#include <functional>

#include "made_source.h"

using namespace dsf;
using namespace dsf::test;
using pack_engram::RawOptions;

namespace {
struct Packed {
  MadeSource source;
  TempDir out;
  Packed() { REQUIRE(run_pack(packing(source, out.path())).code == 0); }
  std::filesystem::path file() const { return out / "engram-l1-r0of1.bin"; }
};
RawOptions from_record(const Packed& p) {
  RawOptions raw;
  raw.check = p.out.path();
  return raw;
}
}  // namespace

TEST_CASE("untouched packs pass every kind of check") {
  const Packed p;
  const Ran whole = run_pack(checking(p.source, p.out.path()));
  CHECK_MESSAGE(whole.code == 0, whole.err);
  CHECK(whole.out.find("462 of 462 rows compared") != std::string::npos);
  RawOptions sampled = checking(p.source, p.out.path());
  sampled.sample = 20;
  sampled.seed = 5;
  const Ran some = run_pack(sampled);
  CHECK(some.code == 0);
  CHECK(some.out.find("--seed 5") != std::string::npos);
  const Ran digests = run_pack(from_record(p));
  CHECK_MESSAGE(digests.code == 0, digests.err);
  CHECK(digests.out.find("not with the source") != std::string::npos);
}

TEST_CASE("every way to break a pack is code 1, one line, with its class, and the other file is still checked") {
  const auto broken = [](const std::function<void(const Packed&)>& damage, const std::string& cls) {
    for (const bool with_source : {true, false}) {
      const Packed p;
      damage(p);
      RawOptions raw = with_source ? checking(p.source, p.out.path()) : from_record(p);
      raw.common.json = true;
      const Ran ran = run_pack(raw);
      INFO(cls, ": ", ran.err, ran.out);
      CHECK(ran.code == 1);
      CHECK(std::count(ran.err.begin(), ran.err.end(), '\n') == 1);
      CHECK(ran.err.find("engram-l1-r0of1.bin") != std::string::npos);
      CHECK(ran.out.find("\"status\": \"" + cls + "\"") != std::string::npos);
      CHECK(ran.out.find("\"status\": \"ok\"") != std::string::npos);
    }
  };
  broken([](const Packed& p) { flip(p.file(), 4096 + 66 * 77 + 3); }, "content");
  broken([](const Packed& p) { flip(p.file(), 4096 + 66 * 461 + 65); }, "content");  // the last scale byte
  broken([](const Packed& p) { flip(p.file(), 0); }, "magic");
  broken(
      [](const Packed& p) {
        const auto fd = io::open_write(p.file(), true);
        REQUIRE(io::write_at(*fd, 0, std::as_bytes(std::span("DSV41EN1", 8))));
      },
      "magic");
  broken([](const Packed& p) { flip(p.file(), 8); }, "header");  // layer
  broken([](const Packed& p) { flip(p.file(), 2000); }, "reserved");
  broken([](const Packed& p) { cut(p.file(), 1); }, "size");
  broken([](const Packed& p) { cut(p.file(), 66); }, "size");
  broken([](const Packed& p) { std::filesystem::resize_file(p.file(), std::filesystem::file_size(p.file()) + 66); },
         "size");
  broken([](const Packed& p) { std::filesystem::remove(p.file()); }, "missing");
  broken([](const Packed& p) { std::filesystem::resize_file(p.file(), 0); }, "size");
}

TEST_CASE("weights and scales swapped, records shifted: the right size with wrong content is seen") {
  const Packed p;
  std::string text = *io::read_text(p.file());
  std::rotate(text.begin() + 4096, text.begin() + 4096 + 66, text.end());
  REQUIRE(io::write_file_atomic(p.file(), text));
  const Ran ran = run_pack(checking(p.source, p.out.path()));
  CHECK(ran.code == 1);
  CHECK(ran.err.find("462 of 462 rows differ") != std::string::npos);
  RawOptions sampled = checking(p.source, p.out.path());
  sampled.sample = 4;
  CHECK(run_pack(sampled).code == 1);
}

TEST_CASE("another rank's or another split's file under this name is a header finding") {
  const Packed p;
  REQUIRE(run_pack(packing(p.source, p.out.path(), "1", 2)).code == 0);
  std::filesystem::copy_file(p.out / "engram-l1-r1of2.bin", p.file(),
                             std::filesystem::copy_options::overwrite_existing);
  const Ran ran = run_pack(checking(p.source, p.out.path()));
  CHECK(ran.code == 1);
  CHECK(ran.err.find("expected layer 1, rows [0, 462)") != std::string::npos);
}

TEST_CASE("damage in the source shows as a difference too") {
  const Packed p;
  flip(p.source.shard[0], std::filesystem::file_size(p.source.shard[0]) - 1);
  CHECK(run_pack(checking(p.source, p.out.path())).code == 1);
}

TEST_CASE("several wrong files end with a count") {
  const Packed p;
  flip(p.file(), 5000);
  flip(p.out / "engram-l4-r0of1.bin", 5000);
  const Ran ran = run_pack(checking(p.source, p.out.path()));
  CHECK(ran.code == 1);
  CHECK(ran.err.find("2 of 2 files are wrong") != std::string::npos);
}

TEST_CASE("a record that is absent, foreign or damaged is told apart from a wrong pack") {
  Packed p;
  const auto record = p.out / "engram-r0of1.json";
  const std::string text = *io::read_text(record);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    REQUIRE(changed.find(from) != std::string::npos);
    REQUIRE(io::write_file_atomic(record, changed.replace(changed.find(from), from.size(), to)));
    return run_pack(from_record(p)).code;
  };
  CHECK(with("engram-pack", "other") == 8);
  CHECK(with("engram-l1-r0of1.bin", "../../etc/passwd") == 8);
  CHECK(with("\"block_rows\": 65536", "\"block_rows\": 0") == 8);
  CHECK(with("\"hi\": 462", "\"hi\": 46200000") == 8);
  REQUIRE(io::write_file_atomic(record, "{"));
  CHECK(run_pack(from_record(p)).code == 8);
  std::filesystem::remove(record);
  CHECK(run_pack(from_record(p)).code == 5);
}
