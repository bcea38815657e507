// The network part of Machine: addresses, listeners, RDMA ports.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "tools/preflight/machine.h"

namespace dsf::preflight {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& file) {
  const auto text = io::read_text(file, 16 << 20);
  return text ? *text : "";
}

// The sixteen bytes of an address in either family; IPv4 as ::ffff:a.b.c.d.
std::optional<std::array<uint8_t, 16>> address_bytes(std::string text) {
  text = text.substr(0, text.find('%'));  // a scope names an interface, not an address
  std::array<uint8_t, 16> out{};
  if (inet_pton(AF_INET6, text.c_str(), out.data()) == 1) return out;
  in_addr v4{};
  if (inet_pton(AF_INET, text.c_str(), &v4) != 1) return std::nullopt;
  out[10] = out[11] = 0xff;
  std::memcpy(out.data() + 12, &v4, 4);
  return out;
}

// "20010db8..." of /proc/net/if_inet6.
std::optional<std::array<uint8_t, 16>> packed_hex(std::string_view hex) {
  const auto raw = from_hex(hex);
  if (!raw || raw->size() != 16) return std::nullopt;
  std::array<uint8_t, 16> out{};
  std::memcpy(out.data(), raw->data(), 16);
  return out;
}

// Local IPv4 addresses of /proc/net/fib_trie: the address on one line, "/32 host LOCAL" on the next.
bool in_fib_trie(const std::string& trie, const std::array<uint8_t, 16>& wanted) {
  std::istringstream in(trie);
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (const size_t at = line.find("|-- "); at != std::string::npos) last = line.substr(at + 4);
    if (line.find("/32 host LOCAL") != std::string::npos && address_bytes(last) == wanted) return true;
  }
  return false;
}

}  // namespace

bool Machine::is_local_address(const std::string& address) const {
  const auto wanted = address_bytes(address);
  if (!wanted) return false;
  if (in_fib_trie(contents(root_ / "proc/net/fib_trie"), *wanted)) return true;
  std::istringstream in(contents(root_ / "proc/net/if_inet6"));
  for (std::string line; std::getline(in, line);)
    if (packed_hex(line.substr(0, 32)) == wanted) return true;
  return false;
}

bool Machine::listening(uint16_t port) const {
  for (const char* file : {"proc/net/tcp", "proc/net/tcp6"}) {
    std::istringstream in(contents(root_ / file));
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string slot, local, remote, state;
      if (!(words >> slot >> local >> remote >> state) || state != "0A") continue;
      const auto hex = from_hex(std::string_view(local).substr(local.rfind(':') + 1));
      if (hex && hex->size() == 2 &&
          static_cast<uint16_t>((static_cast<uint8_t>((*hex)[0]) << 8) | static_cast<uint8_t>((*hex)[1])) == port)
        return true;
    }
  }
  return false;
}

double Machine::Port::rate_gbps() const { return parse_double(rate.substr(0, rate.find(' '))).value_or(0); }

Machine::Port Machine::port(const manifest::Lane& lane) const {
  const fs::path hca = fs::path("sys/class/infiniband") / lane.hca, netdev = fs::path("sys/class/net") / lane.netdev;
  std::error_code ec;
  Port p;
  p.present = fs::exists(root_ / hca, ec);
  p.netdev_belongs = fs::exists(root_ / hca / "device/net" / lane.netdev, ec);
  p.state = text(hca / "ports/1/state");
  p.rate = text(hca / "ports/1/rate");
  p.link_layer = text(hca / "ports/1/link_layer");
  p.pcie_speed = text(hca / "device/current_link_speed");
  p.pcie_width = text(hca / "device/current_link_width");
  p.pcie_max_speed = text(hca / "device/max_link_speed");
  p.pcie_max_width = text(hca / "device/max_link_width");
  p.mtu = parse_u64(text(netdev / "mtu"));
  p.carrier = parse_i64(text(netdev / "carrier"));
  return p;
}

bool Machine::Gid::zero() const { return address.find_first_not_of("0:") == std::string::npos; }

std::vector<Machine::Gid> Machine::gids(const std::string& hca) const {
  const fs::path port = fs::path("sys/class/infiniband") / hca / "ports/1";
  std::vector<Gid> out;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator(root_ / port / "gids", ec)) {
    const std::string name = e.path().filename().string();
    const auto index = parse_u64(name);
    if (!index || *index > 255) continue;
    out.push_back({static_cast<int>(*index), text(port / "gids" / name), text(port / "gid_attrs/types" / name),
                   text(port / "gid_attrs/ndevs" / name)});
  }
  std::sort(out.begin(), out.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return out;
}

std::vector<std::string> Machine::error_counters(const std::string& hca) const {
  const fs::path dir = fs::path("sys/class/infiniband") / hca / "ports/1/hw_counters";
  std::vector<std::string> out;
  for (const char* name : {"out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
                           "req_transport_retries_exceeded", "roce_adp_retrans", "duplicate_request"}) {
    const auto value = parse_u64(text(dir / name));
    if (value && *value > 0) out.push_back(std::string(name) + "=" + std::to_string(*value));
  }
  return out;
}

}  // namespace dsf::preflight
