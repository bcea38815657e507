// Stamps, pieces, and what others can read: sums, statements.
#include <cstdlib>

#include "dsf/json/json.h"
#include "dsf/manifest/stamps.h"
#include "folder.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// A folder with one file above the size that level quick hashes.
struct Large : Folder {
  std::string content = std::string(verify::kSmallFileBytes + 5, 'x');
  Large() { REQUIRE(io::write_file_atomic(dir / "large.bin", content)); }
  // As if everything had been written an hour ago: the quiet time before a stamp is then over.
  void settle() const {
    auto stamps = *manifest::load_stamps(dir.path());
    for (auto& [path, s] : stamps) s.verified_ms += 3'600'000;
    REQUIRE(manifest::write_stamps(dir.path(), stamps));
  }
  Ran quick(const std::filesystem::path& pin) const {
    verify::RawOptions raw = verifying(*this);
    raw.common.pin = pin;
    raw.level = "quick";
    return run_verify(raw);
  }
};

}  // namespace

TEST_CASE("a full verification leaves stamps, and level quick takes their word until the file is touched") {
  const Large f;
  const auto pin = f.write_pin();
  CHECK(f.quick(pin).prints("1 files of 16 MiB or more: level quick does not hash them"));
  verify::RawOptions full = verifying(f);
  full.common.pin = pin;
  REQUIRE(run_verify(full).code == 0);
  f.settle();
  const Ran stamped = f.quick(pin);
  CHECK(stamped.code == 0);
  CHECK(stamped.prints("1 large files today: their stamps say"));
  flip(f.dir / "large.bin", 7);
  CHECK(f.quick(pin).prints("level quick does not hash them"));
  // A full run ignores stamps, finds the damage and takes the stamp away.
  CHECK(run_verify(full).code == 1);
  CHECK(!manifest::load_stamps(f.dir.path())->contains("large.bin"));
}

TEST_CASE("a stamp is no proof against another pin") {
  const Large f;
  verify::RawOptions full = verifying(f);
  full.common.pin = f.write_pin();
  REQUIRE(run_verify(full).code == 0);
  f.settle();
  manifest::Pin other = pin_of(f.dir.path());
  for (auto& p : other.files)
    if (p.path == "large.bin") p.sha256 = std::string(64, '0');
  CHECK(f.quick(write_pin(other, f.beside / "other.json")).prints("level quick does not hash them"));
}

TEST_CASE("a folder that cannot be written is verified all the same") {
  const Folder f;
  const auto pin = f.write_pin();
  REQUIRE(io::write_file_atomic(f.dir / ".cache", "a file where the folder should be"));
  verify::RawOptions raw = verifying(f);
  raw.common.pin = pin;
  CHECK(run_verify(raw).code == 0);
}

TEST_CASE("pieces: written with the pin, sampled by level quick, and a wrong list is refused") {
  const Folder f;
  const std::string content(verify::kSmallFileBytes + 1, 'p');
  REQUIRE(io::write_file_atomic(f.dir / "large.bin", content));
  verify::RawOptions raw = verifying(f);
  raw.common.pin = f.write_pin();
  raw.write_pieces = (f.beside / "with.json").string();
  raw.piece_bytes = 1 << 20;
  REQUIRE(run_verify(raw).code == 0);
  const auto pin = manifest::load_pin(f.beside / "with.json");
  REQUIRE(pin);
  REQUIRE(pin->find("large.bin")->pieces);
  CHECK(pin->find("large.bin")->pieces->size == 1 << 20);
  CHECK(!pin->find("config.json")->pieces);
  std::filesystem::remove_all(f.dir / ".cache");
  verify::RawOptions quick = verifying(f);
  quick.common.pin = f.beside / "with.json";
  quick.level = "quick";
  CHECK(run_verify(quick).prints("up to sixteen pieces of each were hashed"));
  flip(f.dir / "large.bin", content.size() - 1);
  CHECK(run_verify(quick).code == 1);
  flip(f.beside / "with.pieces" / (pin->find("large.bin")->sha256 + ".bin"), 3);
  CHECK(run_verify(quick).code == 8);
}

TEST_CASE("sha256sum accepts our sums and we accept its") {
  const Folder f;
  verify::RawOptions raw = verifying(f);
  raw.write_sums = (f.dir / "SHA256SUMS").string();
  REQUIRE(run_verify(raw).code == 0);
  const std::string in = "cd '" + f.dir.path().string() + "' && ";
  CHECK(std::system((in + "sha256sum --check --strict --quiet SHA256SUMS").c_str()) == 0);
  REQUIRE(std::system((in + "sha256sum *.json *.safetensors > sums.txt && mv sums.txt SHA256SUMS").c_str()) == 0);
  const Ran ran = run_verify(verifying(f));
  CHECK(ran.code == 0);
  CHECK(ran.prints("against SHA256SUMS"));
  flip(f.dir / "config.json", 0);
  CHECK(run_verify(verifying(f)).code == 1);
}

TEST_CASE("the in-toto statement lists every file in byte order under one root digest") {
  const Folder f;
  verify::RawOptions raw = against_pin(f);
  raw.in_toto = (f.beside / "statement.json").string();
  REQUIRE(run_verify(raw).code == 0);
  const auto root = json::parse(*io::read_text(f.beside / "statement.json"), "statement");
  REQUIRE(root);
  CHECK(root->find("_type")->as_string() == "https://in-toto.io/Statement/v1");
  const auto& resources = root->find("predicate")->find("resources")->as_array();
  REQUIRE(resources.size() == 4);
  codec::Sha256 hash;
  std::string last;
  for (const json::Value& r : resources) {
    CHECK(last < r.find("name")->as_string());
    last = r.find("name")->as_string();
    hash.update(codec::Digest::from_hex(r.find("digest")->as_string())->bytes);
  }
  CHECK(root->find("subject")->as_array().front().find("digest")->find("sha256")->as_string() == hash.finish().hex());
  flip(f.dir / kShard1, *io::file_size(f.dir / kShard1) - 1);
  std::filesystem::remove(f.beside / "statement.json");
  CHECK(run_verify(raw).code == 1);
  CHECK(!std::filesystem::exists(f.beside / "statement.json"));
}

TEST_CASE("what the hf client noted is taken only when asked for, and called its own word") {
  const Folder f;
  const auto note = [&](const std::string& path, const std::string& etag) {
    const auto file = f.dir / ".cache" / "huggingface" / "download" / (path + ".metadata");
    std::filesystem::create_directories(file.parent_path());
    REQUIRE(io::write_file_atomic(file, std::string(40, 'c') + "\n" + etag + "\n1712656091.123\n"));
  };
  note(kShard1, codec::sha256_file(f.dir / kShard1)->hex());
  note("config.json", *codec::git_blob_sha1_file(f.dir / "config.json"));
  verify::RawOptions raw = verifying(f);
  CHECK(run_verify(raw).prints("against nothing"));
  raw.from_hf = true;
  const Ran ran = run_verify(raw);
  CHECK_MESSAGE(ran.code == 0, ran.err);
  CHECK(ran.prints("self-declared"));
  CHECK(ran.prints("2 files that the"));  // the second shard and the index have no note
  replace_text(f.dir / "config.json", "{}", "[]");
  CHECK(run_verify(raw).code == 1);
  std::filesystem::remove_all(f.dir / ".cache");
  CHECK(run_verify(raw).code == 5);
}

TEST_CASE("options that do not go together are usage errors") {
  const Folder f;
  verify::RawOptions raw = verifying(f);
  raw.level = "quick";
  raw.in_toto = "x";
  CHECK(run_verify(raw).code == 2);
  raw = verifying(f);
  raw.write_pieces = "x";
  CHECK(run_verify(raw).code == 2);
  raw = against_pin(f);
  raw.from_hf = true;
  CHECK(run_verify(raw).code == 2);
}
