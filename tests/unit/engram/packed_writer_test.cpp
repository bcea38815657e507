// Going on after a stop: what the journal proves is kept, everything else is written again.
#include "dsf/engram/packed_writer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using engram::kPackBlockRows;
using engram::PackedHeader;
using engram::PackedWriter;

namespace {

constexpr uint64_t kRowBytes = 33;
const PackedHeader kHeader{7, 100, 100 + 3 * kPackBlockRows + 5, 100 + 4 * kPackBlockRows, kRowBytes};

std::vector<std::byte> block(uint64_t i) {
  const uint64_t n = std::min(kPackBlockRows, kHeader.hi - kHeader.lo - i * kPackBlockRows);
  std::vector<std::byte> out(n * kRowBytes);
  for (size_t k = 0; k < out.size(); ++k) out[k] = static_cast<std::byte>((k * 31 + i * 17) >> 3);
  return out;
}
// Appends blocks [rows / block, end), as the packer does.
void write_blocks(PackedWriter& w, uint64_t end) {
  for (uint64_t i = ceil_div(w.rows(), kPackBlockRows); i < end; ++i) {
    REQUIRE(w.append_records(block(i)));
    REQUIRE(w.note_digest(codec::sha256(block(i))));
  }
}
std::string whole_file() {
  const auto head = engram::encode_header(kHeader);
  std::string out(as_text(head));
  for (uint64_t i = 0; i < 4; ++i) out += as_text(block(i));
  return out;
}

struct Stopped {
  test::TempDir dir;
  std::filesystem::path target = dir / "p.bin", part = dir / ".p.bin.part", journal = dir / ".p.bin.journal";
  explicit Stopped(uint64_t blocks) {
    auto w = PackedWriter::resume(target, kHeader, "tables A");
    REQUIRE(w);
    CHECK(w->rows() == 0);
    write_blocks(*w, blocks);
  }
  // Goes on, finishes, and says behind which row it went on.
  uint64_t finish(std::string_view source = "tables A") const {
    auto w = PackedWriter::resume(target, kHeader, source);
    REQUIRE(w);
    const uint64_t rows = w->rows();
    write_blocks(*w, 4);
    CHECK(w->block_sha256().size() == 4);
    REQUIRE(w->finish());
    CHECK(*io::read_text(target) == whole_file());
    CHECK(!std::filesystem::exists(part));
    CHECK(!std::filesystem::exists(journal));
    return rows;
  }
};

void damage(const std::filesystem::path& file, const std::function<void(std::string&)>& change) {
  std::string text = *io::read_text(file);
  change(text);
  const auto fd = io::open_write(file);
  REQUIRE(fd);
  REQUIRE(io::write_all(*fd, as_bytes(text)));
}

}  // namespace

TEST_CASE("a stopped run goes on behind its last whole block, wherever it stopped") {
  CHECK(Stopped(0).finish() == 0);
  CHECK(Stopped(1).finish() == kPackBlockRows);
  CHECK(Stopped(3).finish() == 3 * kPackBlockRows);
  CHECK(Stopped(4).finish() == kHeader.hi - kHeader.lo);
}

TEST_CASE("the target is not there before the end, and the part stays when the writer is dropped") {
  const Stopped s(2);
  CHECK(!std::filesystem::exists(s.target));
  CHECK(engram::has_part(s.target));
}

TEST_CASE("blocks that are not as the journal says are written again") {
  const Stopped second(3);
  damage(second.part, [](std::string& b) { b[4096 + kPackBlockRows * kRowBytes + 9] ^= 1; });
  CHECK(second.finish() == kPackBlockRows);
  const Stopped header(3);
  damage(header.part, [](std::string& b) { b[8] = 9; });
  CHECK(header.finish() == 0);
  const Stopped cut(3);
  damage(cut.part, [](std::string& b) { b.resize(4096 + 2 * kPackBlockRows * kRowBytes + 1); });
  CHECK(cut.finish() == 2 * kPackBlockRows);
  const Stopped empty(3);
  damage(empty.part, [](std::string& b) { b.clear(); });
  CHECK(empty.finish() == 0);
}

TEST_CASE("a torn, foreign or absent journal costs blocks, never content") {
  const Stopped torn(3);
  damage(torn.journal, [](std::string& t) { t.resize(t.size() - 4); });
  CHECK(torn.finish() == 2 * kPackBlockRows);
  const Stopped gone(3);
  std::filesystem::remove(gone.journal);
  CHECK(gone.finish() == 0);
  const Stopped unsure(3);
  std::filesystem::remove(unsure.part);
  CHECK(unsure.finish() == 0);
  CHECK(Stopped(3).finish("tables B") == 0);
}

TEST_CASE("discard leaves nothing") {
  const Stopped s(2);
  auto w = PackedWriter::resume(s.target, kHeader, "tables A");
  REQUIRE(w);
  w->discard();
  CHECK(std::filesystem::is_empty(s.dir.path()));
}
