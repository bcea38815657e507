#include <doctest/doctest.h>

#include "dsf/http/client.h"

using namespace dsf;

namespace {
http::Url url(std::string_view text) {
  auto u = http::parse_url(text);
  REQUIRE_MESSAGE(u, text);
  return *u;
}
std::string resolved(std::string_view base, std::string_view reference) {
  auto u = http::resolve_url(url(base), reference);
  REQUIRE_MESSAGE(u, reference);
  return http::to_string(*u);
}
}  // namespace

TEST_CASE("a URL splits into its parts and joins again") {
  const http::Url u = url("HTTPS://Example.Org:8443/a/b%20c?x=1&y=2#frag");
  CHECK(u.scheme == "https");
  CHECK(u.host == "example.org");
  CHECK(u.port == "8443");
  CHECK(u.path == "/a/b%20c");
  CHECK(u.query == "x=1&y=2");
  CHECK(http::to_string(u) == "https://example.org:8443/a/b%20c?x=1&y=2");
  CHECK(http::to_string(url("http://h")) == "http://h/");
  CHECK(url("http://[::1]:80/x").host == "[::1]");
  CHECK(url("http://h?q").query == "q");
}

TEST_CASE("URLs that could mislead are refused") {
  for (const char* text :
       {"ftp://h/", "h/x", "http://", "http:///x", "http://user:pw@h/", "http://h:0/", "http://h:70000/", "http://h:x/",
        "http://h/a b", "http://h/a\nb", "http://[::1", "http://[::1]x/", ""}) {
    auto u = http::parse_url(text);
    REQUIRE_MESSAGE(!u, text);
    CHECK(u.error().code == Code::kUsage);
    CHECK(u.error().line().find("pw") == std::string::npos);
  }
}

TEST_CASE("the origin includes the default port") {
  CHECK(http::origin(url("http://h/x")) == http::origin(url("http://h:80/y")));
  CHECK(http::origin(url("https://h/x")) == "https://h:443");
  CHECK(http::origin(url("http://h:1/")) != http::origin(url("http://h:2/")));
}

TEST_CASE("references resolve against their base") {
  CHECK(resolved("http://h/a/b?q", "/c?d") == "http://h/c?d");
  CHECK(resolved("http://h/a/b?q", "c") == "http://h/a/c");
  CHECK(resolved("http://h/a/b/", "../c") == "http://h/a/c");
  CHECK(resolved("http://h/a/b", "?x") == "http://h/a/b?x");
  CHECK(resolved("https://h/a", "//o:1/p") == "https://o:1/p");
  CHECK(resolved("https://h/a", "http://o/p") == "http://o/p");
  CHECK(resolved("http://h/a", "/x?u=http://y") == "http://h/x?u=http://y");
}

TEST_CASE("percent encoding is exact and reversible") {
  CHECK(http::percent_encode("refs/pr/1") == "refs%2Fpr%2F1");
  CHECK(http::percent_encode("sub/d ir/\xC3\xA9#%.txt", "/") == "sub/d%20ir/%C3%A9%23%25.txt");
  CHECK(http::percent_decode("sub/d%20ir/%C3%A9%23%25.txt") == "sub/d ir/\xC3\xA9#%.txt");
  CHECK(http::percent_decode("%") == "%");
  CHECK(http::percent_decode("%4") == "%4");
  CHECK(http::percent_decode("a%4") == "a%4");
  CHECK(http::percent_decode("%zz%41") == "%zzA");
}

TEST_CASE("secrets in a query or an authority never reach a message") {
  CHECK(http::redacted("https://h/p?Signature=abc") == "https://h/p?...");
  CHECK(http::redacted("https://u:p@h/p") == "https://***@h/p");
  CHECK(http::redacted("https://h/p@q") == "https://h/p@q");
}

TEST_CASE("headers are found whatever their case") {
  const http::Headers headers{{"X-Linked-Etag", "a"}, {"ETag", "b"}};
  CHECK(http::find_header(headers, "x-linked-etag") == "a");
  CHECK(http::find_header(headers, "etag") == "b");
  CHECK(http::find_header(headers, "E") == "");
}
