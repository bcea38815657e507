#include "tools/serve/engine/engram_reader.h"

#include <doctest/doctest.h>

#include <atomic>

#include "tests/unit/engram/release.h"

using namespace dsf;
using namespace dsf::serve;

namespace {

// A record is the row's number modulo 251 in every byte; row `broken` cannot be read.
class NumberedRows final : public engram::RowSource {
 public:
  explicit NumberedRows(int64_t broken)
      : RowSource(engram::Layout::create(test::tiny_spec()).value()), broken_(broken) {}
  engram::RowRange owned(size_t layer_index) const override { return {0, layout_.layers()[layer_index].rows}; }
  Result<void> read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const override {
    const auto bytes = static_cast<size_t>(layout_.row_bytes());
    REQUIRE(out.size() == rows.size() * bytes);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == broken_) return fail(Code::kLocal, "rows", "cannot be read");
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i * bytes), bytes, mark(layer_index, rows[i]));
    }
    reads += static_cast<int>(rows.size());
    return {};
  }
  std::vector<std::pair<std::string, std::string>> identity() const override { return {}; }
  static std::byte mark(size_t layer, int64_t row) {
    return static_cast<std::byte>((row + static_cast<int64_t>(layer)) % 251);
  }
  mutable std::atomic<int> reads = 0;

 private:
  int64_t broken_;
};

std::vector<int64_t> some_rows(size_t n, int64_t step) {
  std::vector<int64_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<int64_t>(i) * step % 400;
  return out;
}

}  // namespace

TEST_CASE("rows arrive where they belong, whatever the number of threads, step after step") {
  const NumberedRows source(-1);
  const auto bytes = static_cast<size_t>(source.layout().row_bytes());
  for (const int threads : {0, 1, 4}) {
    EngramReader reader(source, threads);
    for (const size_t n : {size_t{1}, size_t{6}, size_t{7}, size_t{300}, size_t{0}}) {
      const std::vector<std::vector<int64_t>> rows{some_rows(n, 7), some_rows(2 * n, 13)};
      std::vector<std::byte> first(n * bytes), second(2 * n * bytes);
      reader.start(rows, {first, second});
      CHECK(reader.wait(0));
      for (size_t i = 0; i < n; ++i) CHECK(first[(i + 1) * bytes - 1] == NumberedRows::mark(0, rows[0][i]));
      CHECK(reader.wait(1));
      for (size_t i = 0; i < 2 * n; ++i) CHECK(second[i * bytes] == NumberedRows::mark(1, rows[1][i]));
      reader.finish();
    }
  }
}

TEST_CASE("a row that cannot be read fails its own layer, and an abandoned step ends") {
  const NumberedRows source(26);
  const auto bytes = static_cast<size_t>(source.layout().row_bytes());
  EngramReader reader(source, 2);
  std::vector<std::byte> first(3 * bytes), second(40 * bytes);
  reader.start({{1, 2, 3}, some_rows(40, 13)}, {first, second});
  CHECK(reader.wait(0));
  const auto failed = reader.wait(1);
  REQUIRE(!failed);
  CHECK(failed.error().code == Code::kLocal);
  reader.finish();
  reader.start({{1, 2, 3}, some_rows(40, 13)}, {first, second});
  reader.finish();  // nobody waited
  reader.start({{4, 5, 6}, {}}, {first, {}});
  CHECK(reader.wait(0));
  CHECK(first[0] == NumberedRows::mark(0, 4));
}
