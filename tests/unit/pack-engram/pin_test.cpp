#include <functional>

#include "dsf/codec/sha256.h"
#include "dsf/manifest/pin.h"
#include "made_source.h"

using namespace dsf;
using namespace dsf::test;

namespace {

manifest::Pin pin_of(const MadeSource& source) {
  manifest::Pin pin;
  pin.name = "tables";
  pin.source.repo = "org/release";
  pin.source.revision = std::string(40, 'a');
  for (const std::string& name : {std::string("config.json"), std::string("model.safetensors.index.json"), source.shard[0].filename().string(), source.shard[1].filename().string()}) {
    manifest::PinFile f;
    f.path = name;
    f.size = *io::file_size(source.dir / name);
    f.sha256 = codec::sha256_file(source.dir / name)->hex();
    f.role = manifest::guess_role(name);
    if (name.ends_with(".safetensors")) {
      const auto header = safetensors::read_header(source.dir / name);
      REQUIRE(header);
      const std::string head = io::read_text(source.dir / name)->substr(0, header->data_offset);
      f.safetensors = manifest::SafetensorsFacts{header->data_offset, codec::sha256(head).hex(), header->tensors.size()};
    }
    pin.files.push_back(std::move(f));
  }
  pin.sort();
  return pin;
}

Ran pack_with(const MadeSource& source, const manifest::Pin& pin, const std::filesystem::path& output) {
  TempDir dir;
  REQUIRE(io::write_file_atomic(dir / "pin.json", manifest::write(pin)));
  pack_engram::RawOptions raw = packing(source, output);
  raw.common.pin = dir / "pin.json";
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
  const auto refused = [](const std::function<void(manifest::Pin&, const MadeSource&)>& change, int code, const std::string& words) {
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
  refused([&](manifest::Pin& p, const MadeSource&) { p.files[1].safetensors->header_sha256 = other; }, 8, "header is not the pinned one");
  refused([&](manifest::Pin& p, const MadeSource&) { p.files.erase(p.files.begin() + 1); }, 2, "does not name");
}
