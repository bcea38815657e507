#include <doctest/doctest.h>

#include "dsf/base/time.h"
#include "dsf/hub/hub.h"

using namespace dsf;

namespace {
hub::Hub::Outcome answer(int status, http::Headers headers = {}, bool storage = false, std::string body = {}) {
  http::Response r;
  r.status = status;
  r.headers = std::move(headers);
  r.body = std::move(body);
  return hub::classify(r, "https://h/x", storage);
}
}  // namespace

TEST_CASE("answers become classes and exit codes") {
  CHECK(answer(401).error.cls == "not_found_or_auth");
  CHECK(answer(401, {{"X-Error-Message", "Invalid credentials in Authorization header"}}).error.cls == "auth");
  CHECK(answer(403, {{"X-Error-Code", "GatedRepo"}}).error.cls == "gated");
  CHECK(answer(403, {}, false, R"({"error":"Access to this resource is disabled."})").error.cls == "disabled");
  CHECK(answer(403).error.code == Code::kRefused);
  CHECK(answer(404, {{"X-Error-Code", "RepoNotFound"}}).error.code == Code::kRefused);
  CHECK(answer(404, {{"X-Error-Code", "RevisionNotFound"}}).error.code == Code::kMissing);
  CHECK(answer(404, {{"X-Error-Code", "EntryNotFound"}}).error.cls == "entry");
  CHECK(answer(416).error.code == Code::kContent);
  for (const int s : {408, 425, 500, 502, 503, 504, 520, 524}) {
    CHECK(answer(s).retry);
    CHECK(answer(s).counts);
  }
  CHECK(answer(429).retry);
  CHECK_FALSE(answer(429).counts);
  for (const int s : {400, 401, 403, 410}) {
    CHECK(answer(s, {}, true).error.cls == "expired");
    CHECK(answer(s, {}, true).retry);
  }
  CHECK_FALSE(answer(400).retry);
  CHECK_FALSE(answer(451).retry);
  CHECK(answer(500, {{"X-Request-Id", "abc"}}).error.line().find("abc") != std::string::npos);
}

TEST_CASE("waits are read from seconds, dates and the rate limit header") {
  CHECK(hub::retry_after_us({{"Retry-After", "3"}}, 0) == 3'000'000);
  CHECK(hub::retry_after_us({{"Retry-After", "Mon, 30 Nov 2026 06:00:10 GMT"}}, 1796018400'000) == 10'000'000);
  CHECK(hub::retry_after_us({{"Retry-After", "Mon, 30 Nov 2026 06:00:10 GMT"}}, 1796018499'000) == 0);
  CHECK(hub::retry_after_us({{"RateLimit", "\"resolvers\";r=0;t=42"}}, 0) == 42'000'000);
  CHECK_FALSE(hub::retry_after_us({{"RateLimit", "\"resolvers\";r=5;t=42"}}, 0));
  CHECK_FALSE(hub::retry_after_us({{"Retry-After", "soon"}}, 0));
}

TEST_CASE("expiry of signed URLs is the earliest that the URL names") {
  const auto expiry = [](const char* query) {
    return hub::url_expiry_ms(*http::parse_url(std::string("https://h/x?") + query));
  };
  CHECK(expiry("Expires=1796018400&Signature=s") == 1796018400'000);
  CHECK(expiry("X-Amz-Date=20261130T060000Z&X-Amz-Expires=3600") == 1796022000'000);
  CHECK(expiry("X-Goog-Date=20261130T060000Z&X-Goog-Expires=60&Expires=1796018401") == 1796018401'000);
  CHECK_FALSE(expiry("a=b"));
  CHECK_FALSE(expiry("Expires=99999999999999999999"));
}

TEST_CASE("the next page is found among links") {
  CHECK(hub::next_link("<https://h/a?cursor=1>; rel=\"next\"") == "https://h/a?cursor=1");
  CHECK(hub::next_link("<https://h/p>; rel=\"prev\", <https://h/n>; rel=\"next\"") == "https://h/n");
  CHECK(hub::next_link("<https://h/p>; rel=\"prev\"").empty());
  CHECK(hub::next_link("<broken").empty());
  CHECK(hub::next_link("").empty());
}

TEST_CASE("backoff stays below its bounds and a closed gate holds everybody") {
  hub::RetryPolicy policy;
  policy.base_us = 1000;
  policy.cap_us = 5000;
  hub::Shared shared({}, policy);
  for (int n = 0; n < 50; ++n) CHECK(shared.backoff_us(n) <= 5000);
  CHECK(shared.backoff_us(0) <= 1000);
  const int64_t start = monotonic_ns();
  shared.close_gate_until(start + 30'000'000);
  CHECK(shared.wait(0));
  CHECK(monotonic_ns() - start >= 30'000'000);
  shared.stop = [] { return true; };
  CHECK_FALSE(shared.wait(1'000'000));
}
