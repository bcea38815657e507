#include "dsf/manifest/record.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;

TEST_CASE("a record opens with schema, created_by, inputs and items, and comes back whole") {
  manifest::FetchRecord r;
  r.created_by = "dsf-fetch/0.1.0";
  r.inputs = {{"manifests/x.json", std::string(64, 'a')}};
  r.pin_name = "x";
  r.pin_sha256 = std::string(64, 'a');
  r.repo = "org/repo";
  r.revision = std::string(40, 'b');
  r.files = {{"config.json", 5, std::string(64, 'c'), std::string(40, 'd'), "received", "2026-11-30T06:00:00.000Z",
              "network", "h", 0.5, 1, 2, 3}};
  const std::string text = manifest::write(manifest::to_record(r));
  CHECK(text.find("\"schema\": \"hub-record\"") < text.find("\"created_by\""));
  CHECK(text.find("\"created_by\"") < text.find("\"inputs\""));
  CHECK(text.find("\"inputs\"") < text.find("\"items\""));
  CHECK(text.find("\"items\"") < text.find("\"pin_name\""));

  test::TempDir dir;
  REQUIRE(io::make_dirs(dir / ".cache/fetch"));
  REQUIRE(io::write_file_atomic(dir / ".cache/fetch/record.json", text));
  const auto back = manifest::load_fetch_record(dir.path());
  REQUIRE_MESSAGE(back, back.error().line());
  CHECK(back->repo == "org/repo");
  REQUIRE(back->files.size() == 1);
  CHECK(back->files[0].git_sha1 == std::string(40, 'd'));
  CHECK(back->files[0].seconds == doctest::Approx(0.5));
  CHECK(back->files[0].dev == 3);
}

TEST_CASE("readers ignore members they do not know and refuse other schemas and newer versions") {
  const auto parse = [](std::string_view text) { return manifest::parse_record(text, "r.json", "hub-record"); };
  CHECK(parse(
      R"({"schema":"hub-record","version":1,"created_by":"t","inputs":[{"path":"p","sha256":null}],"items":[],"later":{"a":1}})"));
  for (const char* bad :
       {R"({"schema":"other","version":1,"created_by":"t","inputs":[],"items":[]})",
        R"({"schema":"hub-record","version":2,"created_by":"t","inputs":[],"items":[]})",
        R"({"schema":"hub-record","version":1,"inputs":[],"items":[]})",
        R"({"schema":"hub-record","version":1,"created_by":"t","inputs":[],"items":{}})", "{}", "[", ""}) {
    const auto r = parse(bad);
    REQUIRE_MESSAGE(!r, bad);
    CHECK(r.error().code == Code::kContent);
  }
}

TEST_CASE("a folder without a record is missing one, not broken") {
  test::TempDir dir;
  const auto r = manifest::load_fetch_record(dir.path());
  REQUIRE(!r);
  CHECK(r.error().code == Code::kMissing);
}
