#include "dsf/manifest/pin.h"

#include <functional>

#include "dsf/codec/sha256.h"
#include "made_source.h"

using namespace dsf;
using namespace dsf::test;

namespace {

manifest::Pin pin_of(const MadeSource& source) {
  manifest::Pin pin = test::pin_of(source.dir.path());
  pin.complete = false;
  for (manifest::PinFile& f : pin.files) {
    if (!f.path.ends_with(".safetensors")) continue;
    const auto header = safetensors::read_header(source.dir / f.path);
    REQUIRE(header);
    const std::string head = io::read_text(source.dir / f.path)->substr(0, header->data_offset);
    f.safetensors = manifest::SafetensorsFacts{header->data_offset, codec::sha256(head).hex(), header->tensors.size()};
  }
  return pin;
}

Ran pack_with(const MadeSource& source, const manifest::Pin& pin, const std::filesystem::path& output) {
  TempDir dir;
  pack_engram::RawOptions raw = packing(source, output);
  raw.common.pin = write_pin(pin, dir / "pin.json");
  return run_pack(raw);
}

}  // namespace

TEST_CASE("the pinned source packs") {
  const MadeSource source;
  TempDir out;
  const Ran ran = pack_with(source, pin_of(source), out.path());
  CHECK_MESSAGE(ran.code == 0, ran.err);
}

TEST_CASE("a source of another revision is refused before anything is written") {
  const auto refused = [](const std::function<void(manifest::Pin&, const MadeSource&)>& change, int code,
                          const std::string& words) {
    const MadeSource source;
    TempDir out;
    manifest::Pin pin = pin_of(source);
    change(pin, source);
    const Ran ran = pack_with(source, pin, out / "packs");
    INFO(ran.err);
    CHECK(ran.code == code);
    CHECK(ran.err.find(words) != std::string::npos);
    CHECK(!std::filesystem::exists(out / "packs"));
  };
  const std::string other(64, '1');
  refused([&](manifest::Pin& p, const MadeSource&) { p.files[0].sha256 = other; }, 8, "config.json");
  refused([&](manifest::Pin& p, const MadeSource&) { p.files[3].sha256 = other; }, 8, "index.json");
  refused([&](manifest::Pin& p, const MadeSource&) { p.files[1].size = 5; }, 8, "the pin says 5");
  refused([&](manifest::Pin& p, const MadeSource&) { p.files[1].safetensors->header_sha256 = other; }, 8,
          "header is not the pinned one");
  refused([&](manifest::Pin& p, const MadeSource&) { p.files.erase(p.files.begin() + 1); }, 2, "does not name");
}
