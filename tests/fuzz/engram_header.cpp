// The header of a packed Engram file: any bytes give a header or an error; one that was accepted encodes to the same bytes and fits the
// file's size. The first eight bytes of the input say how large the file claims to be.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/engram/packed.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsf;
  if (size < 8) return 0;
  const auto file_bytes = load_le<uint64_t>(data);
  // Inputs are kept small: what follows the words given is zero, as in every sound file.
  std::array<std::byte, engram::kPackedHeaderBytes> bytes{};
  const auto given = std::as_bytes(std::span(data + 8, size - 8));
  std::copy_n(given.begin(), std::min(given.size(), bytes.size()), bytes.begin());
  const auto header = engram::parse_packed_header(bytes, file_bytes, "fuzz");
  if (!header) {
    DSF_CHECK(!header.error().what.empty() && !header.error().cls.empty(), "an error without words");
    return 0;
  }
  DSF_CHECK(header->file_bytes() == file_bytes, "the header's own size");
  DSF_CHECK(engram::encode_header(*header) == bytes, "the same bytes again");
  return 0;
}
