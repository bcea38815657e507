#include "dsf/http/server.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "dsf/base/time.h"
#include "raw_peer.h"

using namespace dsf;
using dsf::test::RawPeer;

namespace {

void echo(const http::ServerRequest& request, http::ResponseWriter& out) {
  out.send(200, {{"Content-Type", "text/plain"}},
           request.method + " " + request.path + " ?" + request.query + " [" + request.body + "]");
}

std::unique_ptr<http::Server> start(http::Handler handler = echo, http::ServerOptions options = {}) {
  auto server = http::Server::listen(std::move(options), std::move(handler));
  REQUIRE_MESSAGE(server.has_value(), (server ? "" : server.error().line()));
  return std::move(*server);
}

// Status line and body of the first response in text.
int status_of(const std::string& text) { return text.starts_with("HTTP/1.1 ") ? std::stoi(text.substr(9, 3)) : 0; }
std::string body_of(const std::string& text) {
  const size_t end = text.find("\r\n\r\n");
  return end == std::string::npos ? "" : text.substr(end + 4);
}

// One request on a fresh connection; everything until the server closes or falls silent.
std::string exchange(const http::Server& server, std::string_view bytes) {
  RawPeer peer(server.port());
  REQUIRE(peer.connected());
  REQUIRE(peer.send(bytes));
  peer.half_close();
  return peer.receive();
}

bool wait_until(const std::function<bool()>& condition, int timeout_ms = 5000) {
  const int64_t end = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
  while (!condition()) {
    if (monotonic_ns() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

TEST_CASE("a request split at every byte is one request") {
  const auto server = start();
  const std::string_view request = "POST /a%20b?q=%31 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
  RawPeer peer(server->port());
  for (const char c : request) REQUIRE(peer.send({&c, 1}));
  const std::string text = peer.receive("]");
  CHECK(status_of(text) == 200);
  CHECK(body_of(text) == "POST /a b ?q=%31 [hello]");
}

TEST_CASE("pipelined requests are answered in order on one connection") {
  const auto server = start();
  RawPeer peer(server->port());
  peer.send(
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=\"v\"\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: t\r\n\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\nConnection: "
      "close\r\n\r\n");
  const std::string text = peer.receive();
  const size_t one = text.find("GET /1 ? []"), two = text.find("POST /2 ? [abcde]"), three = text.find("GET /3 ? []");
  CHECK(one != std::string::npos);
  CHECK(two != std::string::npos);
  CHECK(three != std::string::npos);
  CHECK(one < two);
  CHECK(two < three);
  CHECK(text.find("Connection: close") > two);
}

TEST_CASE("malformed and ambiguous requests are refused without the handler") {
  std::atomic<int> handled = 0;
  const auto server = start([&](const http::ServerRequest&, http::ResponseWriter& out) {
    ++handled;
    out.send(200, {}, "");
  });
  const struct {
    std::string_view request;
    int status;
  } cases[] = {
      {"GARBAGE\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: x\n\n", 400},
      {"GET / FOO\r\nHost: x\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5, 5\r\n\r\nhello", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 1\r\n\r\nx", 417},
  };
  for (const auto& c : cases) {
    CAPTURE(c.request);
    RawPeer peer(server->port());
    peer.send(c.request);
    const std::string text = peer.receive();
    CHECK(status_of(text) == c.status);
    CHECK(text.find("Connection: close") != std::string::npos);
  }
  CHECK(handled == 0);
}

TEST_CASE("a header over the limit is 431 and a body over the limit is 413, before either is stored") {
  http::ServerOptions options;
  options.max_header_bytes = 1024;
  options.max_body_bytes = 100;
  const auto server = start(echo, options);
  RawPeer big_header(server->port());
  big_header.send("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(2000, 'a'));
  CHECK(status_of(big_header.receive()) == 431);
  RawPeer exact(server->port());
  exact.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + std::string(100, 'b'));
  CHECK(status_of(exact.receive("]")) == 200);
  RawPeer chunked(server->port());
  chunked.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + std::string(64, 'b') +
               "\r\n40\r\n");
  CHECK(status_of(chunked.receive()) == 413);
}

TEST_CASE("slow headers end in 408, a silent connection is closed without a word") {
  http::ServerOptions options;
  options.idle_timeout_us = 150'000;
  const auto server = start(echo, options);
  RawPeer slow(server->port()), silent(server->port());
  // A byte now and then does not extend the time for a header.
  for (int i = 0; i < 12; ++i) {
    if (!slow.send("G")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(status_of(slow.receive()) == 408);
  CHECK(silent.receive().empty());
}

TEST_CASE("keep-alive follows the version and the Connection header") {
  const auto server = start();
  RawPeer old(server->port());
  old.send("GET /old HTTP/1.0\r\n\r\n");
  CHECK(old.receive().find("Connection: close") != std::string::npos);
  RawPeer kept(server->port());
  kept.send("GET /k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  CHECK(kept.receive("]").find("Connection: keep-alive") != std::string::npos);
  kept.send("GET /k2 HTTP/1.0\r\n\r\n");
  CHECK(kept.receive().find("/k2") != std::string::npos);
}

TEST_CASE("HEAD gets the headers of GET and no body") {
  const auto server = start([](const http::ServerRequest& request, http::ResponseWriter& out) {
    if (request.path == "/stream") {
      out.begin(200, {});
      out.write("never sent");
      out.end();
    } else {
      out.send(200, {}, "12345");
    }
  });
  RawPeer peer(server->port());
  peer.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string text = peer.receive();
  CHECK(text.find("Content-Length: 5") != std::string::npos);
  CHECK(text.find("Transfer-Encoding: chunked") != std::string::npos);
  CHECK(text.find("12345") == std::string::npos);
  CHECK(text.find("never sent") == std::string::npos);
}

TEST_CASE("streams are chunked for HTTP/1.1, raw with a length, and end with the connection for HTTP/1.0") {
  const auto server = start([](const http::ServerRequest& request, http::ResponseWriter& out) {
    out.begin(200, {}, request.path == "/length" ? 6 : -1);
    CHECK(out.write("abc"));
    CHECK(out.write(""));
    CHECK(out.write("defgh"));
    out.end();
  });
  CHECK(body_of(exchange(*server, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) ==
        "3\r\nabc\r\n5\r\ndefgh\r\n0\r\n\r\n");
  CHECK(body_of(exchange(*server, "GET /length HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")) == "abcdef");
  CHECK(body_of(exchange(*server, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")) == "abcdefgh");
}

TEST_CASE("a promised length that is not reached closes the connection") {
  const auto server = start([](const http::ServerRequest&, http::ResponseWriter& out) {
    out.begin(200, {}, 100);
    out.write("short");
    out.end();
  });
  RawPeer peer(server->port());
  peer.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(body_of(peer.receive()) == "short");
}

TEST_CASE("values from a request cannot start a new response header") {
  const auto server = start([](const http::ServerRequest&, http::ResponseWriter& out) {
    out.send(200, {{"X", "a\r\nEvil: 1"}}, "");
  });
  const std::string text = exchange(*server, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  CHECK(text.find("\r\nEvil") == std::string::npos);
  CHECK(text.find("X: a  Evil: 1\r\n") != std::string::npos);
}

TEST_CASE("100-continue is sent before the body is read") {
  const auto server = start();
  RawPeer peer(server->port());
  peer.send("POST /c HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(peer.receive("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  peer.send("ok");
  CHECK(body_of(peer.receive("]")) == "POST /c ? [ok]");
}

TEST_CASE("client_gone sees a close while the handler works, and writes to it fail") {
  std::promise<bool> seen;
  const auto server = start([&](const http::ServerRequest&, http::ResponseWriter& out) {
    const bool before = out.client_gone();
    const bool gone = wait_until([&] { return out.client_gone(); });
    out.begin(200, {});
    const bool failed = wait_until([&] { return !out.write(std::string(1 << 16, 'x')); });
    seen.set_value(!before && gone && failed);
    out.end();
  });
  {
    RawPeer peer(server->port());
    // A pipelined request must not hide the close behind it.
    peer.send("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  CHECK(seen.get_future().get());
}

TEST_CASE("abort ends the connection: softly by its end, hard by a reset") {
  const auto server = start([](const http::ServerRequest& request, http::ResponseWriter& out) {
    out.begin(200, {}, 100);
    out.write("part");
    if (request.path == "/hard") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    out.abort(request.path == "/hard");
    CHECK_FALSE(out.write("more"));
  });
  RawPeer soft(server->port());
  soft.send("GET /soft HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(body_of(soft.receive()) == "part");
  CHECK_FALSE(soft.was_reset());
  RawPeer hard(server->port());
  hard.send("GET /hard HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(body_of(hard.receive()) == "part");
  CHECK(hard.was_reset());
}

TEST_CASE("a handler that throws or forgets to answer gives 500") {
  const auto server = start([](const http::ServerRequest& request, http::ResponseWriter&) {
    if (request.path == "/throw") throw std::runtime_error("bug");
  });
  CHECK(status_of(exchange(*server, "GET /throw HTTP/1.1\r\nHost: x\r\n\r\n")) == 500);
  CHECK(status_of(exchange(*server, "GET /forget HTTP/1.1\r\nHost: x\r\n\r\n")) == 500);
}

TEST_CASE("connections beyond the limit get 503, and there is room again afterwards") {
  http::ServerOptions options;
  options.max_connections = 2;
  const auto server = start(echo, options);
  {
    RawPeer a(server->port()), b(server->port());
    a.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    b.send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(status_of(a.receive("]")) == 200);
    CHECK(status_of(b.receive("]")) == 200);
    RawPeer c(server->port());
    CHECK(status_of(c.receive()) == 503);
  }
  CHECK(wait_until([&] { return status_of(exchange(*server, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")) == 200; }));
}

TEST_CASE("stop closes idle connections at once and lets running handlers end") {
  std::latch entered(1), release(1);
  auto server = start([&](const http::ServerRequest& request, http::ResponseWriter& out) {
    if (request.path == "/slow") {
      entered.count_down();
      release.wait();
    }
    out.send(200, {}, "done");
  });
  RawPeer idle(server->port()), slow(server->port());
  idle.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(idle.receive("done").ends_with("done"));
  slow.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  entered.wait();
  std::jthread stopper([&] { server->stop(); });
  CHECK(idle.closed());
  CHECK_FALSE(RawPeer(server->port()).connected());
  release.count_down();
  const std::string text = slow.receive();
  CHECK(text.ends_with("done"));
  CHECK(text.find("Connection: close") != std::string::npos);
}

TEST_CASE("a port that is taken is reported as busy") {
  const auto server = start();
  http::ServerOptions options;
  options.port = server->port();
  const auto second = http::Server::listen(options, echo);
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().code == Code::kBusy);
  CHECK(server->base_url() == "http://127.0.0.1:" + std::to_string(server->port()));
  options.host = "no such host.invalid";
  CHECK(http::Server::listen(options, echo).error().code == Code::kUsage);
}

TEST_CASE("many clients at once, through the client of this library") {
  const auto server = start();
  std::atomic<int> good = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        http::Client client;
        for (int i = 0; i < 20; ++i) {
          http::Request request;
          request.method = "POST";
          request.url = server->base_url() + "/t" + std::to_string(t);
          request.body = std::string(static_cast<size_t>(i) * 5000, 'z');
          const auto response = client.perform(request);
          if (response && response->status == 200 && response->body.ends_with(request.body + "]")) ++good;
        }
      });
    }
  }
  CHECK(good == 160);
}
