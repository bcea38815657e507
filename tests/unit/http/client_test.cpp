#include "dsf/http/client.h"

#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/http/server.h"

using namespace dsf;

namespace {

std::unique_ptr<http::Server> serve(http::Handler handler, const std::string& host = "127.0.0.1") {
  http::ServerOptions options;
  options.host = host;
  auto server = http::Server::listen(options, std::move(handler));
  REQUIRE_MESSAGE(server, server.error().line());
  return std::move(*server);
}

http::Request get(std::string url) {
  http::Request r;
  r.url = std::move(url);
  return r;
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("a request and its answer arrive whole, on one connection") {
  std::mutex mutex;
  std::set<std::string> peers;
  auto server = serve([&](const http::ServerRequest& r, http::ResponseWriter& w) {
    const std::lock_guard lock(mutex);
    peers.insert(r.peer);
    w.send(201, {{"X-Method", r.method}, {"X-Type", std::string(r.header("content-type"))}}, r.body + "|" + r.target);
  });
  http::Client client;
  for (int i = 0; i < 3; ++i) {
    http::Request request = get(server->base_url() + "/a%20b?x=1");
    request.method = "POST";
    request.body = "hello";
    request.headers = {{"Content-Type", "text/plain"}};
    const auto answer = client.perform(request);
    REQUIRE_MESSAGE(answer, answer.error().line());
    CHECK(answer->status == 201);
    CHECK(answer->version == "1.1");
    CHECK(answer->body == "hello|/a%20b?x=1");
    CHECK(http::find_header(answer->headers, "x-method") == "POST");
    CHECK(http::find_header(answer->headers, "x-type") == "text/plain");
    CHECK(answer->sent_ns > 0);
    CHECK(answer->first_byte_ns >= answer->sent_ns);
  }
  CHECK(peers.size() == 1);
}

TEST_CASE("a body streams to the callback with the time of each read") {
  auto server = serve([](const http::ServerRequest&, http::ResponseWriter& w) {
    w.begin(200, {});
    for (int i = 0; i < 3; ++i) {
      w.write("chunk");
      sleep_ms(30);
    }
    w.end();
  });
  http::Client client;
  std::vector<int64_t> times;
  bool headers_first = false;
  std::string body;
  http::Request request = get(server->base_url() + "/");
  request.on_headers = [&](const http::Response& r) { return headers_first = body.empty() && r.status == 200; };
  request.on_body = [&](std::span<const std::byte> bytes, int64_t ns) {
    times.push_back(ns);
    body += as_text(bytes);
    return true;
  };
  const auto answer = client.perform(request);
  REQUIRE(answer);
  CHECK(headers_first);
  CHECK(answer->body.empty());
  CHECK(body == "chunkchunkchunk");
  REQUIRE(times.size() >= 2);
  CHECK(times.back() - times.front() > 20'000'000);
}

TEST_CASE("callbacks and the stop function end a transfer") {
  auto server = serve([](const http::ServerRequest&, http::ResponseWriter& w) {
    w.begin(200, {});
    while (w.write("more")) sleep_ms(5);
  });
  http::Client client;
  http::Request request = get(server->base_url() + "/");
  request.on_body = [](std::span<const std::byte>, int64_t) { return false; };
  auto answer = client.perform(request);
  REQUIRE(!answer);
  CHECK(answer.error().cls == "stopped");
  request.on_body = [](std::span<const std::byte>, int64_t) { return true; };
  const int64_t start = monotonic_ns();
  request.stop = [&] { return monotonic_ns() - start > 50'000'000; };
  answer = client.perform(request);
  REQUIRE(!answer);
  CHECK(answer.error().cls == "stopped");
  request.stop = {};
  request.on_headers = [](const http::Response&) { return false; };
  CHECK(client.perform(request).error().cls == "stopped");
}

TEST_CASE("silence and slowness have separate limits") {
  std::atomic<bool> leave = false;
  auto server = serve([&](const http::ServerRequest& r, http::ResponseWriter& w) {
    w.begin(200, {});
    while (!leave && !w.client_gone()) {
      if (r.path == "/drip") w.write("x");
      sleep_ms(10);
    }
  });
  http::Client client;
  http::Request request = get(server->base_url() + "/silent");
  request.stall_timeout_us = 100'000;
  auto answer = client.perform(request);
  REQUIRE(!answer);
  CHECK(answer.error().code == Code::kRemote);
  CHECK(answer.error().cls == "timeout");
  request = get(server->base_url() + "/drip");
  request.stall_timeout_us = 5'000'000;
  request.total_timeout_us = 150'000;
  const int64_t start = monotonic_ns();
  answer = client.perform(request);
  REQUIRE(!answer);
  CHECK(answer.error().cls == "timeout");
  CHECK(monotonic_ns() - start < 2'000'000'000);
  leave = true;
}

TEST_CASE("a connection that ends early is a short body, a reset or a refused connection") {
  auto server = serve([](const http::ServerRequest& r, http::ResponseWriter& w) {
    w.begin(200, {}, 1000);
    w.write("only this");
    w.abort(r.path == "/hard");
  });
  http::Client client;
  CHECK(client.perform(get(server->base_url() + "/soft")).error().cls == "short_body");
  const std::string hard = client.perform(get(server->base_url() + "/hard")).error().cls;
  CHECK((hard == "reset" || hard == "short_body"));
  const std::string url = server->base_url();
  server->stop();
  const auto refused = client.perform(get(url + "/"));
  REQUIRE(!refused);
  CHECK(refused.error().cls == "connect");
}

TEST_CASE("redirects carry credentials at home and nowhere else") {
  std::string seen_elsewhere = "none", seen_home;
  auto other = serve(
      [&](const http::ServerRequest& r, http::ResponseWriter& w) {
        seen_elsewhere = std::string(r.header("authorization")) + std::string(r.header("cookie"));
        w.send(200, {}, "elsewhere " + std::string(r.header("x-keep")));
      },
      "127.0.0.1");  // the same host name: the port alone makes another origin
  auto server = serve([&](const http::ServerRequest& r, http::ResponseWriter& w) {
    if (r.path == "/near") return w.send(307, {{"Location", "/home?q=1"}}, "moved");
    if (r.path == "/far") return w.send(302, {{"Location", other->base_url() + "/x?Signature=s"}}, "moved");
    if (r.path == "/loop") return w.send(302, {{"Location", "/loop"}}, "");
    seen_home = r.header("authorization");
    w.send(200, {}, "home " + r.query);
  });
  http::Client client;
  http::Request request = get(server->base_url() + "/near");
  request.headers = {{"Authorization", "Bearer secret"}, {"Cookie", "c=1"}, {"X-Keep", "yes"}};
  CHECK(client.perform(request)->status == 307);
  request.follow_redirects = true;
  auto answer = client.perform(request);
  REQUIRE(answer);
  CHECK(answer->body == "home q=1");
  CHECK(seen_home == "Bearer secret");
  request.url = server->base_url() + "/far";
  answer = client.perform(request);
  REQUIRE(answer);
  CHECK(answer->body == "elsewhere yes");
  CHECK(answer->effective_url == other->base_url() + "/x?Signature=s");
  CHECK(seen_elsewhere.empty());
  request.url = server->base_url() + "/loop";
  CHECK(client.perform(request).error().cls == "redirect");
}

TEST_CASE("a body beyond the limit and a header with a line break are refused") {
  auto server =
      serve([](const http::ServerRequest&, http::ResponseWriter& w) { w.send(200, {}, std::string(5000, 'x')); });
  http::Client client;
  http::Request request = get(server->base_url() + "/");
  request.max_body_bytes = 4999;
  CHECK(client.perform(request).error().cls == "too_large");
  request.max_body_bytes = 5000;
  CHECK(client.perform(request)->body.size() == 5000);
  request.headers = {{"X-A", "b\r\nX-Injected: c"}};
  CHECK(client.perform(request).error().code == Code::kUsage);
  request.headers = {{"X A", "b"}};
  CHECK(client.perform(request).error().code == Code::kUsage);
}

TEST_CASE("HEAD has no body but its headers") {
  auto server = serve([](const http::ServerRequest&, http::ResponseWriter& w) { w.send(200, {}, "body"); });
  http::Client client;
  http::Request request = get(server->base_url() + "/");
  request.method = "HEAD";
  const auto answer = client.perform(request);
  REQUIRE(answer);
  CHECK(answer->body.empty());
  CHECK(http::find_header(answer->headers, "content-length") == "4");
}

TEST_CASE("clients that share a pace are as fast together as one alone may be") {
  const auto server =
      serve([](const http::ServerRequest&, http::ResponseWriter& w) { w.send(200, {}, std::string(100'000, 'x')); });
  const auto pace = std::make_shared<http::Pace>(1'000'000);
  const int64_t start = monotonic_ns();
  std::atomic<int> whole = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back([&] {
      http::ClientOptions options;
      options.pace = pace;
      const auto answer = http::Client(options).perform(get(server->base_url() + "/x"));
      if (answer && answer->body.size() == 100'000) ++whole;
    });
  for (std::thread& c : clients) c.join();
  CHECK(whole == 4);
  CHECK(monotonic_ns() - start >= 399'000'000);  // 400,000 bytes at 1,000,000 a second
}

TEST_CASE("a stopped request does not wait for its share of the pace") {
  http::Pace pace(1);
  CHECK_FALSE(pace.pay(1'000'000, [] { return true; }));
}
