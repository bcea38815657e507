#pragma once
// One accepted connection: reads requests, runs the handler, writes responses, until either side ends it. Runs on its
// own thread.
#include <atomic>
#include <string>

#include "dsf/http/server.h"

namespace dsf::http {

struct ConnectionContext {
  const ServerOptions* options;
  const Handler* handler;
  const std::atomic<bool>* stopping;
  int stop_fd;  // becomes readable when the server stops
};

// Owns fd (non-blocking) and closes it. refuse: answer 503 without reading (too many connections).
void serve_connection(int fd, std::string peer, bool refuse, const ConnectionContext& context);

}  // namespace dsf::http
