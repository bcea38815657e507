#include "tools/preflight/compare.h"

#include <functional>
#include <sstream>

#include "made_machine.h"
#include "runners.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// The reports of two ranks that go together: packs of both ranks beside one checkpoint.
struct Pair {
  TempDir dir;
  std::string a = (dir / "a.json").string(), b = (dir / "b.json").string();
  Pair() {
    REQUIRE(run_pack_ranks(made().native, dir / "packs", 2).code == 0);
    for (const int rank : {0, 1}) {
      const MadeMachine machine(rank);
      preflight::RawOptions raw = preflight_of(made().exl3, dir / "packs");
      raw.system_root = machine.root();
      raw.rank = rank;
      raw.world_size = 2;
      raw.report = rank == 0 ? a : b;
      const Ran ran = run_preflight(raw);
      REQUIRE_MESSAGE(ran.code == 0, ran.err);
    }
  }
  Ran compared() const {
    preflight::RawCompare raw;
    raw.a = a;
    raw.b = b;
    std::ostringstream out, err;
    const auto rc = preflight::compare(raw, out, err);
    if (!rc) return {static_cast<int>(rc.error().code), "", rc.error().line() + "\n"};
    return {*rc, out.str(), err.str()};
  }
};

}  // namespace

TEST_CASE("two ranks of one checkpoint are a pair, and unproven weights are said") {
  const Pair pair;
  const Ran ran = pair.compared();
  INFO(ran.err, ran.out);
  CHECK(ran.code == 0);
  CHECK(ran.prints("PAIR"));
  CHECK(ran.prints("2 layers join"));
  CHECK(ran.says("warning: pair.values: shards: neither node has proven its weights"));
}

TEST_CASE("nodes that differ where they must not are no pair, and the line says in what") {
  const Pair pair;
  const auto differs = [&](const std::string& from, const std::string& to, const std::string& words, int code = 1) {
    const std::string kept = *io::read_text(pair.b);
    replace_text(pair.b, from, to);
    const Ran ran = pair.compared();
    INFO(words, ": ", ran.err);
    CHECK(ran.code == code);
    CHECK(ran.says(words));
    REQUIRE(io::write_file_atomic(pair.b, kept));
  };
  differs("\"rank\": 1", "\"rank\": 0", "has the same rank");
  differs("\"world_size\": 2", "\"world_size\": 3", "world size");
  differs("\"result\": \"ready\"", "\"result\": \"not ready\"", "not ready by itself");
  differs("\"image_bias_sha256\": \"", "\"image_bias_sha256\": \"0", "image_bias_sha256:");
  differs("\"router_bias_sha256\": \"", "\"router_bias_sha256\": \"0", "router_bias_sha256:");
  differs("\"codebook\": \"mul1\"", "\"codebook\": \"mcg\"", "codebook: mul1 here, mcg there");
  differs("\"engram_rows_1\": \"", "\"engram_rows_1\": \"9", "do not join");
  differs("\"engram_source_sha256\"", "\"engram_other\"", "has no engram_source_sha256");
  differs("\"driver\": \"580.95.05\"", "\"driver\": \"590.44.01\"", "warning: pair.values: driver", 0);
  differs("\"machine_memory\": \"", "\"machine_memory\": \"2", "warning: pair.memory", 0);
  differs("\"schema\": \"preflight\"", "\"schema\": \"other\"", "wanted \"preflight\"", 8);
  std::filesystem::remove(pair.b);
  CHECK(pair.compared().code == 5);
}
