#pragma once
// How the processes of a group find each other. Private to comm; tcp.h has the contract.
#include <vector>

#include "dsf/comm/tcp.h"
#include "socket.h"

namespace dsf::comm {

struct Joined {
  struct Peer {
    int rank = 0;
    Socket data, fate;
  };
  std::vector<Peer> peers;  // of rank 0: every other rank, ascending; of the others: rank 0
};

Result<Joined> join(const TcpOptions& options);

}  // namespace dsf::comm
