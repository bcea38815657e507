#include "tls_front.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

namespace dsf::test {

struct TlsFront::Context {
  SSL_CTX* ssl = SSL_CTX_new(TLS_server_method());
  ~Context() { SSL_CTX_free(ssl); }
};

namespace {

void add_extension(X509* cert, int nid, const char* value) {
  X509V3_CTX ctx;
  X509V3_set_ctx_nodb(&ctx);
  X509V3_set_ctx(&ctx, cert, cert, nullptr, nullptr, 0);
  X509_EXTENSION* e = X509V3_EXT_conf_nid(nullptr, &ctx, nid, value);
  REQUIRE(e != nullptr);
  X509_add_ext(cert, e, -1);
  X509_EXTENSION_free(e);
}

// A key and a certificate that signs itself, into the context and as PEM.
void make_certificate(SSL_CTX* ssl, const std::filesystem::path& pem) {
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  X509* cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("dsf test"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  add_extension(cert, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(cert, NID_subject_alt_name, "IP:127.0.0.1");
  REQUIRE(X509_sign(cert, key, EVP_sha256()) > 0);
  REQUIRE(SSL_CTX_use_certificate(ssl, cert) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(ssl, key) == 1);
  FILE* file = std::fopen(pem.c_str(), "w");
  REQUIRE(file != nullptr);
  PEM_write_X509(file, cert);
  std::fclose(file);
  X509_free(cert);
  EVP_PKEY_free(key);
}

int connect_to(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

void reset(int fd) {
  const linger now{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fd);
}

bool send_all(int fd, const char* data, size_t n) {
  while (n > 0) {
    const ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    n -= static_cast<size_t>(sent);
  }
  return true;
}

// Both ways until one side ends.
void pump(SSL* ssl, int client, int plain, const std::atomic<bool>& stop) {
  std::array<char, 16384> buffer{};
  while (!stop) {
    std::array<pollfd, 2> fds{pollfd{client, POLLIN, 0}, pollfd{plain, POLLIN, 0}};
    if (SSL_pending(ssl) == 0 && poll(fds.data(), fds.size(), 100) == 0) continue;
    if (SSL_pending(ssl) > 0 || (fds[0].revents & (POLLIN | POLLHUP)) != 0) {
      const int n = SSL_read(ssl, buffer.data(), static_cast<int>(buffer.size()));
      if (n <= 0 || !send_all(plain, buffer.data(), static_cast<size_t>(n))) return;
    }
    if ((fds[1].revents & (POLLIN | POLLHUP)) != 0) {
      const ssize_t n = recv(plain, buffer.data(), buffer.size(), 0);
      if (n <= 0 || SSL_write(ssl, buffer.data(), static_cast<int>(n)) <= 0) return;
    }
  }
}

}  // namespace

TlsFront::TlsFront(uint16_t plain_port, std::filesystem::path ca_file)
    : context_(std::make_unique<Context>()), plain_port_(plain_port) {
  make_certificate(context_->ssl, ca_file);
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(listen(listener_, 16) == 0);
  REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  port_ = ntohs(at.sin_port);
  acceptor_ = std::thread([this] { accept_loop(); });
}

TlsFront::~TlsFront() {
  stop_ = true;
  acceptor_.join();
  for (std::thread& t : workers_) t.join();
  close(listener_);
}

void TlsFront::accept_loop() {
  while (!stop_) {
    pollfd p{listener_, POLLIN, 0};
    if (poll(&p, 1, 50) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) workers_.emplace_back([this, client] { serve(client); });
  }
}

void TlsFront::serve(int client) {
  ++connections_;
  if (resets_ > 0) {
    --resets_;
    std::array<char, 16> hello{};
    (void)!recv(client, hello.data(), hello.size(), 0);
    return reset(client);
  }
  SSL* ssl = SSL_new(context_->ssl);
  SSL_set_fd(ssl, client);
  const int plain = SSL_accept(ssl) == 1 ? connect_to(plain_port_) : -1;
  if (plain >= 0) {
    pump(ssl, client, plain, stop_);
    SSL_shutdown(ssl);
    close(plain);
  }
  SSL_free(ssl);
  close(client);
}

}  // namespace dsf::test
