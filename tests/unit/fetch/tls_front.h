#pragma once
// TLS in front of a plain server: one thread a connection, a certificate made at the start. For tests of certificate
// authorities, bad certificates and broken handshakes.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <thread>

namespace dsf::test {

class TlsFront {
 public:
  // Forwards to 127.0.0.1:plain_port. The certificate is for 127.0.0.1; it is its own authority, in ca_file.
  TlsFront(uint16_t plain_port, std::filesystem::path ca_file);
  ~TlsFront();
  TlsFront(const TlsFront&) = delete;
  TlsFront& operator=(const TlsFront&) = delete;
  std::string endpoint() const { return "https://127.0.0.1:" + std::to_string(port_); }
  // The next n connections are reset in the middle of the handshake.
  void reset_next(int n) { resets_ = n; }
  int connections() const { return connections_; }

 private:
  struct Context;
  void accept_loop();
  void serve(int client);
  std::unique_ptr<Context> context_;
  int listener_ = -1;
  uint16_t port_ = 0, plain_port_;
  std::atomic<int> resets_ = 0, connections_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread acceptor_;
  std::list<std::thread> workers_;  // of the acceptor
};

}  // namespace dsf::test
