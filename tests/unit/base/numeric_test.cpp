#include <doctest/doctest.h>

#include "dsf/base/numeric.h"
#include "dsf/base/result.h"
#include "dsf/base/time.h"

using namespace dsf;

TEST_CASE("numbers are taken whole or not at all") {
  CHECK(parse_u64("18446744073709551615") == UINT64_MAX);
  for (const char* bad : {"", " 1", "1 ", "+1", "-1", "0x10", "18446744073709551616", "1e3"}) CHECK_FALSE(parse_u64(bad));
  CHECK(parse_i64("-9223372036854775808") == INT64_MIN);
}

TEST_CASE("sizes accept binary and decimal units") {
  CHECK(parse_bytes("64MiB") == 64 * kMiB);
  CHECK(parse_bytes("1.5 GiB") == kGiB + kGiB / 2);
  CHECK(parse_bytes("10MB") == 10'000'000);
  for (const char* bad : {"", "MiB", "1XB", "-1MiB", "9223372036854775808", "1e30TiB"}) CHECK_FALSE(parse_bytes(bad));
}

TEST_CASE("durations accept ms, s, m, h and bare seconds") {
  CHECK(parse_duration_us("250ms") == 250'000);
  CHECK(parse_duration_us("1.5s") == 1'500'000);
  CHECK(parse_duration_us("2") == 2'000'000);
  CHECK_FALSE(parse_duration_us("2 weeks"));
}

TEST_CASE("checked arithmetic reports overflow") {
  CHECK(checked_mul<uint64_t>(UINT64_MAX, 1) == UINT64_MAX);
  CHECK_FALSE(checked_mul<uint64_t>(UINT64_MAX, 2));
  CHECK_FALSE(checked_add<int64_t>(INT64_MAX, 1));
}

TEST_CASE("hex goes both ways") {
  CHECK(to_hex(as_bytes("\x00\xffz")) == "");  // the literal ends at its first NUL
  CHECK(to_hex(as_bytes(std::string_view("\x00\xffz", 3))) == "00ff7a");
  CHECK(from_hex("00ff7A") == std::string("\x00\xffz", 3));
  CHECK_FALSE(from_hex("0"));
  CHECK_FALSE(from_hex("0g"));
}

TEST_CASE("an error is one line whatever is in it") {
  const Error e{Code::kContent, "a\nb", "bad\x01", "re-fetch", ""};
  CHECK(e.line() == "a?b: bad?; re-fetch");
}

TEST_CASE("with several classes of error the exit code follows the fixed order") {
  CHECK(worst(Code::kRemote, Code::kContent) == Code::kContent);
  CHECK(worst(Code::kNo, Code::kMissing) == Code::kMissing);
  CHECK(worst(Code::kOk, Code::kUsage) == Code::kUsage);
}

TEST_CASE("times are RFC 3339 in UTC") { CHECK(rfc3339_utc(1'000'000'000'123) == "2001-09-09T01:46:40.123Z"); }
