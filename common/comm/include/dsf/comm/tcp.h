#pragma once
// A group of processes over TCP: the CPU's transport, and the way by which GPU ranks find each other and learn that one is gone.
//
// Rank 0 listens on the rendezvous until every rank has come, then stops listening; the others dial it again and again. Each has two
// connections to rank 0: one for collectives (sums are formed by rank 0 in rank order, so every rank gets the same bits) and one for fate:
// beats every 100 ms in both directions, read by a monitor thread that ends every wait of its rank when a peer hangs up, falls silent or
// reports a failure. Nothing is encrypted or authenticated: use it on a cable or a network of one's own.
//
// Errors of join: kRemote when nobody came in time (class "timeout") or somebody left ("peer_lost"); kUsage when versions, world sizes or
// protocols differ ("version_skew", "world"); kBusy on a rank number that is taken; kLocal when the address cannot be used.
// Source: cluster.md 1.15, 3, 4.2.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dsf/comm/collective.h"

namespace dsf::comm {

struct TcpOptions {
  int rank = 0, world = 1;
  std::string rendezvous;  // "HOST:PORT" of rank 0, "[::1]:29571"; rank 0 listens on this address alone
  std::string version;     // of the program: ranks of different versions do not join
  int64_t join_timeout_us = 1'800'000'000;
  int64_t timeout_us = 20'000'000;   // of a wait in a collective, until enter() says otherwise
  int64_t silence_us = 1'500'000;    // without a beat before a peer counts as lost
  // From the monitor thread, once, when a peer is lost or has failed; the group's waits have ended by then. May be empty.
  std::function<void(const Error&)> on_lost;
};

Result<std::unique_ptr<Communicator>> join_tcp_group(TcpOptions options);

}  // namespace dsf::comm
