// Pins, records and paths: any bytes give a manifest or an error with words; an accepted pin has one byte form and safe
// paths only.
#include <cstdint>
#include <string>

#include "dsf/base/check.h"
#include "dsf/manifest/pin.h"
#include "dsf/manifest/record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsf;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto pin = manifest::parse_pin(text, "fuzz")) {
    const std::string once = manifest::write(*pin);
    const auto again = manifest::parse_pin(once, "fuzz");
    DSF_CHECK(again && manifest::write(*again) == once, "write(parse(write(pin))) is not the same");
    for (const manifest::PinFile& f : pin->files)
      DSF_CHECK(manifest::path_problem(f.path).empty(), "unsafe path accepted");
    DSF_CHECK(manifest::diff(*pin, *again).empty(), "a pin differs from itself");
  } else {
    DSF_CHECK(!pin.error().line().empty(), "an error without words");
  }
  if (const auto record = manifest::parse_record(text, "fuzz", "hub-record"))
    (void)manifest::fetch_record_from(*record, "fuzz");
  // Text as a path and as a pattern over the rest.
  const size_t half = size / 2;
  (void)manifest::glob_match(text.substr(0, half), text.substr(half));
  (void)manifest::path_problem(text);
  (void)manifest::portability_problem(text);
  for (const char c : manifest::printable(text))
    DSF_CHECK(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "control character printed");
  return 0;
}
