#pragma once
// What the network loop brings home from one request: decoded body bytes and the read that delivered each of them. No parsing has
// happened yet beyond HTTP framing. Times are monotonic nanoseconds relative to the run's epoch.
#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/record.h"

namespace dsf::bench {

enum class Ending {
  kComplete,          // the body ended as HTTP says it ends
  kCut,               // closed or reset before that
  kConnectError, kTimeoutConnect, kTimeoutFirstToken, kTimeoutIdle, kTimeoutTotal,
  kBadHttp,           // the answer is not HTTP/1.1
  kAborted            // by us, on a signal
};

struct BodyRead {
  int64_t t = 0;         // right after the read, before any parsing
  int64_t bytes = 0;     // as read from the socket, framing included
  size_t body_end = 0;   // length of the body once this read was decoded
};

struct Capture {
  Stamps t;  // scheduled, release, sent, headers, first_byte, end
  HttpInfo http;
  std::string body;
  std::vector<BodyRead> reads;
  Ending ending = Ending::kComplete;
  std::string error;
  int64_t loop_lag_max_ns = 0;
};

}  // namespace dsf::bench
