// Each damage is really there, in exactly one place.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/exl3/matrix.h"
#include "dsf/io/file.h"
#include "dsf/made_checkpoint/folders.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"

using namespace dsf;
using made_checkpoint::Damage;
using safetensors::Checkpoint;

namespace {

constexpr const char* kTensor = "layers.2.attn.wkv.weight";

// A damaged copy of a folder, as long as the object lives.
class Damaged {
 public:
  Damaged(const std::filesystem::path& from, const std::string& breakage) : dir_(temp_ / "c") {
    made_checkpoint::copy_folder(from, dir_);
    const auto b = made_checkpoint::parse_breakage(breakage);
    REQUIRE(b.has_value());
    const auto done = made_checkpoint::damage(dir_, *b);
    REQUIRE_MESSAGE(done, done.error().line());
    what_ = *done;
  }
  const std::filesystem::path& dir() const { return dir_; }
  const std::string& what() const { return what_; }
  Result<Checkpoint> open() const { return Checkpoint::open(dir_); }

 private:
  test::TempDir temp_;
  std::filesystem::path dir_;
  std::string what_;
};

Damaged native(const std::string& kind) { return {made_checkpoint::native_folder(), kind}; }
Damaged pack(const std::string& kind) { return {made_checkpoint::exl3_folder(), kind}; }

// Differing bits between a tensor and its undamaged original.
int differing_bits(const Checkpoint& damaged, const std::filesystem::path& from, const std::string& tensor) {
  const auto original = Checkpoint::open(from);
  const auto a = original->tensor(tensor), b = damaged.tensor(tensor);
  REQUIRE((a.has_value() && b.has_value()));
  REQUIRE(a->bytes.size() == b->bytes.size());
  int bits = 0;
  for (size_t i = 0; i < a->bytes.size(); ++i) bits += std::popcount(static_cast<unsigned>(a->bytes[i] ^ b->bytes[i]));
  return bits;
}

}  // namespace

TEST_CASE("a flipped bit is one bit, scrambled content keeps its size") {
  const Damaged flipped = native(std::string("flip-bit:") + kTensor);
  CHECK(differing_bits(flipped.open().value(), made_checkpoint::native_folder(), kTensor) == 1);
  const Damaged scrambled = native(std::string("scramble:") + kTensor);
  CHECK(differing_bits(scrambled.open().value(), made_checkpoint::native_folder(), kTensor) > 1000);
}

TEST_CASE("a truncated file, a lost one, a long header and a header that is no JSON make the checkpoint unreadable") {
  CHECK(native("truncate").open().error().code == Code::kContent);
  CHECK(native("long-header").open().error().code == Code::kContent);
  CHECK(native("bad-header").open().error().code == Code::kContent);
  CHECK(native("lost-shard").open().error().code == Code::kMissing);
  CHECK(native("missing-shard").open().error().code == Code::kMissing);
}

TEST_CASE("shape and type differ in the header only") {
  const Damaged shape = native(std::string("wrong-shape:") + kTensor);
  const auto c = shape.open();
  REQUIRE(c.has_value());
  CHECK(c->tensor(kTensor)->shape() == tensor::Shape{64, 256});
  CHECK(differing_bits(*c, made_checkpoint::native_folder(), kTensor) == 0);
  const Damaged dtype = native(std::string("wrong-dtype:") + kTensor);
  CHECK(dtype.open()->tensor(kTensor)->dtype() == tensor::DType::kF8E5M2);
}

TEST_CASE(
    "a missing tensor is gone from the index, too; an unlisted or duplicate one makes index and shards disagree") {
  const Damaged missing = native(std::string("missing-tensor:") + kTensor);
  const auto c = missing.open();
  REQUIRE(c.has_value());
  CHECK(!c->contains(kTensor));
  CHECK(c->contains("layers.2.attn.wkv.scale"));
  CHECK(native("unlisted-tensor").open().error().code == Code::kContent);
  CHECK(native("duplicate-tensor").open().error().code == Code::kContent);
}

TEST_CASE("dropped biases are gone in every layer and block, and only they") {
  const Damaged bias = native("drop-bias");
  const auto a = bias.open();
  REQUIRE(a.has_value());
  const auto all = Checkpoint::open(made_checkpoint::native_folder())->names();
  CHECK(a->names().size() == all.size() - 9);
  CHECK(!a->contains("mtp.1.ffn.gate.bias"));
  CHECK(a->contains("mtp.1.ffn.gate.bias_vl"));
  const Damaged vl = pack("drop-bias-vl");
  const auto b = vl.open();
  REQUIRE(b.has_value());
  CHECK(!b->contains("layers.0.ffn.gate.bias_vl"));
  CHECK(b->contains("layers.0.ffn.gate.bias"));
}

TEST_CASE("markers and scales of a packed matrix are refused by the reader") {
  const std::string p = "layers.2.attn.wkv";
  const auto opened = [&](const Damaged& d) { return exl3::open(d.open().value(), p); };
  CHECK(opened(pack("wrong-marker:" + p + ".mul1")).error().code == Code::kContent);
  CHECK(opened(pack("not-finite:" + p + ".suh")).error().code == Code::kContent);
  CHECK(opened(pack("wrong-shape:" + p + ".trellis")).error().code == Code::kContent);
  // Without its marker a matrix is a valid 3INST one. Only a check of the whole pack can tell.
  const Damaged dropped = pack("dropped-marker:" + p + ".mul1");
  CHECK(opened(dropped)->codebook == exl3::Codebook::k3Inst);
}

TEST_CASE("a NaN among native block scales is the byte 255") {
  const Damaged d = native("not-finite:layers.2.attn.wkv.scale");
  const auto c = d.open();
  REQUIRE(c.has_value());
  const auto bytes = c->tensor("layers.2.attn.wkv.scale")->bytes;
  CHECK(std::count(bytes.begin(), bytes.end(), std::byte{0xff}) == 1);
}

TEST_CASE("every kind finds a tensor of its own where one fits") {
  for (const std::string_view kind : made_checkpoint::breakage_names()) {
    CAPTURE(kind);
    CHECK(!pack(std::string(kind)).what().empty());
  }
}

TEST_CASE("an unknown kind is a usage error that lists the known ones; an unknown tensor is missing") {
  const auto kind = made_checkpoint::parse_breakage("melt");
  REQUIRE(!kind.has_value());
  CHECK(kind.error().code == Code::kUsage);
  CHECK(kind.error().line().find("flip-bit") != std::string::npos);
  test::TempDir dir;
  made_checkpoint::copy_folder(made_checkpoint::native_folder(), dir / "c");
  CHECK(made_checkpoint::damage(dir / "c", {Damage::kFlipBit, "no.such"}).error().code == Code::kMissing);
  CHECK(made_checkpoint::damage(dir / "c", {Damage::kWrongMarker, ""}).error().code == Code::kMissing);
}
