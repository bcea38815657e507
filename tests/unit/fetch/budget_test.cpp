#include "tools/fetch/budget.h"

#include <doctest/doctest.h>

using dsf::fetch::Budget;

namespace {
constexpr int64_t kSecond = 1'000'000'000;
}

TEST_CASE("connections are halved when more than half of them fail within half a minute") {
  Budget b(16);
  for (int i = 0; i < 8; ++i) CHECK_FALSE(b.failed(i * kSecond));
  CHECK(b.failed(8 * kSecond));
  CHECK(b.allowed(8 * kSecond) == 8);
  for (int i = 0; i < 4; ++i) CHECK_FALSE(b.failed(9 * kSecond));
  CHECK(b.failed(9 * kSecond));
  CHECK(b.allowed(9 * kSecond) == 4);
}

TEST_CASE("failures far apart change nothing, and one connection always stays") {
  Budget b(2);
  for (int i = 0; i < 10; ++i) CHECK_FALSE(b.failed(i * 40 * kSecond));
  CHECK(b.allowed(0) == 2);
  CHECK(b.failed(361 * kSecond));
  for (int i = 0; i < 5; ++i) CHECK_FALSE(b.failed(362 * kSecond));
  CHECK(b.allowed(362 * kSecond) == 1);
}

TEST_CASE("each quiet minute brings one connection back") {
  Budget b(4);
  for (int i = 0; i < 3; ++i) b.failed(0);
  CHECK(b.allowed(0) == 2);
  CHECK(b.allowed(59 * kSecond) == 2);
  CHECK(b.allowed(60 * kSecond) == 3);
  CHECK(b.allowed(61 * kSecond) == 3);
  b.failed(100 * kSecond);
  CHECK(b.allowed(159 * kSecond) == 3);
  CHECK(b.allowed(160 * kSecond) == 4);
  CHECK(b.allowed(1000 * kSecond) == 4);
}
