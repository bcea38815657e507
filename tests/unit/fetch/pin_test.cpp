#include <doctest/doctest.h>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "fixture.h"

using namespace dsf;
using test::FetchFixture;

namespace {

manifest::Pin open_pin() {
  manifest::Pin p;
  p.name = "made";
  p.source.repo = "org/repo";
  p.select.include = {"model-*", "config.json"};
  p.expect = {{"*.safetensors", 3}};
  manifest::PinFile f;
  f.path = "model-00001-of-00003.safetensors";
  f.role = manifest::Role::kWeights;
  p.files = {f};
  return p;
}

Result<int> get_pin(const FetchFixture& f, bool allow_open = false) {
  fetch::GetOptions o = f.options();
  o.what = (f.dir / "pin.json").string();
  o.allow_open = allow_open;
  return f.get(o);
}

Result<int> update(const FetchFixture& f) {
  fetch::PinOptions o;
  o.what = (f.dir / "pin.json").string();
  o.update = true;
  return fetch::run_pin(o, f.shared());
}

}  // namespace

TEST_CASE("an open pin is refused, taken on request, filled by update, and then got without a listing") {
  const FetchFixture f;
  f.write("pin.json", manifest::write(open_pin()));
  const auto refused = get_pin(f);
  REQUIRE(!refused);
  CHECK(refused.error().code == Code::kUsage);
  CHECK(refused.error().cls == "open_pin");
  CHECK_FALSE(std::filesystem::exists(f.dir / "out"));
  REQUIRE(get_pin(f, true));
  CHECK(f.read("config.json") == f.files.at("config.json"));
  CHECK_FALSE(f.exists("tokenizer.json"));

  REQUIRE(update(f));
  const auto pin = manifest::load_pin(f.dir / "pin.json");
  REQUIRE_MESSAGE(pin, pin.error().line());
  CHECK_FALSE(pin->open());
  CHECK(pin->files.size() == 4);
  CHECK(pin->source.revision == *f.hub->commit_of("org/repo"));
  CHECK(pin->find("config.json")->sha256 == codec::sha256(f.files.at("config.json")).hex());
  CHECK(manifest::check_canonical(*io::read_text(f.dir / "pin.json"), "pin.json"));
  const std::string before = *io::read_text(f.dir / "pin.json");
  REQUIRE(update(f));
  CHECK(*io::read_text(f.dir / "pin.json") == before);

  f.hub->clear_log();
  std::filesystem::remove_all(f.dir / "out");
  REQUIRE(get_pin(f));
  for (const auto& e : f.hub->log()) CHECK(e.target.find("/api/") == std::string::npos);
  const auto record = manifest::load_fetch_record(f.dir / "out");
  REQUIRE(record);
  CHECK(record->pin_name == "made");
  CHECK(record->pin_sha256 == codec::sha256(before).hex());
  CHECK(record->inputs.at(0).sha256 == record->pin_sha256);
}

TEST_CASE("a pin does not accept another content") {
  const FetchFixture f;
  f.write("pin.json", manifest::write(open_pin()));
  REQUIRE(update(f));
  auto pin = *manifest::load_pin(f.dir / "pin.json");
  for (manifest::PinFile& file : pin.files) {
    if (file.path == "config.json") file.sha256 = std::string(64, '0');
  }
  f.write("pin.json", manifest::write(pin));
  const auto r = get_pin(f);
  REQUIRE(!r);
  CHECK(r.error().code == Code::kContent);
  CHECK_FALSE(f.exists("config.json"));
}

TEST_CASE("an update that does not meet the expectation changes nothing") {
  const FetchFixture f;
  manifest::Pin pin = open_pin();
  pin.expect[0].count = 43;
  f.write("pin.json", manifest::write(pin));
  const auto r = update(f);
  REQUIRE(!r);
  CHECK(r.error().cls == "expectation");
  CHECK(*io::read_text(f.dir / "pin.json") == manifest::write(pin));
}

TEST_CASE("a deployment fills one subfolder per pin") {
  const FetchFixture f;
  manifest::Pin a = open_pin(), b = open_pin();
  b.name = "other";
  b.select.include = {"*.json"};
  b.expect.clear();
  b.files.clear();
  f.write("a.json", manifest::write(a));
  f.write("b.json", manifest::write(b));
  f.write(
      "pin.json",
      R"({"schema":"hub-deployment","version":1,"name":"d","pins":[{"pin":"a.json","subfolder":"x"},{"pin":"b.json","subfolder":"y/z"}]})");
  REQUIRE(update(f));
  const auto r = get_pin(f);
  REQUIRE_MESSAGE(r, r.error().line());
  CHECK(f.read("x/model-00002-of-00003.safetensors") == f.files.at("model-00002-of-00003.safetensors"));
  CHECK(f.read("y/z/tokenizer.json") == f.files.at("tokenizer.json"));
  CHECK(manifest::load_fetch_record(f.dir / "out/y/z")->pin_name == "other");
}
