#include "tools/pack-engram/options.h"

#include <doctest/doctest.h>

using namespace dsf;
using namespace dsf::pack_engram;

TEST_CASE("the modes follow from what is given") {
  RawOptions raw;
  raw.source = "src";
  raw.common.output = "out";
  CHECK(make_plan(raw)->mode == Mode::kPack);
  CHECK(make_plan(raw)->config == "src/config.json");
  raw.common.output.clear();
  CHECK(make_plan(raw)->packs == "src/engram");
  raw.check = "packs";
  CHECK(make_plan(raw)->mode == Mode::kCheckSource);
  raw.source.clear();
  CHECK(make_plan(raw)->mode == Mode::kCheckDigests);
  raw = {};
  raw.dir = "src";
  raw.rank = "all";
  raw.world_size = 3;
  CHECK(make_plan(raw)->ranks == std::vector<int>{0, 1, 2});
}

TEST_CASE("combinations without sense are usage errors") {
  const auto refused = [](auto change) {
    RawOptions raw;
    raw.source = "src";
    change(raw);
    const auto plan = make_plan(raw);
    return !plan && plan.error().code == Code::kUsage;
  };
  CHECK(refused([](RawOptions& r) { r.source.clear(); }));
  CHECK(refused([](RawOptions& r) { r.dir = "other"; }));
  CHECK(refused([](RawOptions& r) { r.rank = "1"; }));
  CHECK(refused([](RawOptions& r) { r.rank = "-1"; }));
  CHECK(refused([](RawOptions& r) { r.rank = "first"; }));
  CHECK(refused([](RawOptions& r) { r.sample = 5; }));
  CHECK(refused([](RawOptions& r) {
    r.check = "x";
    r.common.output = "y";
  }));
  CHECK(refused([](RawOptions& r) {
    r.check = "x";
    r.list = true;
  }));
  CHECK(refused([](RawOptions& r) {
    r.source.clear();
    r.check = "x";
    r.recombine = true;
    r.sample = 5;
  }));
  CHECK(refused([](RawOptions& r) { r.expect = {"1=" + std::string(64, 'a')}; }));
}
