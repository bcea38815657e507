#pragma once
// The published test vectors A to D (bench.md 8) as data: what is sent, and the numbers that must come out. The same table runs in memory (exact)
// and over loopback (times within a tolerance). Pure functions, any thread.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/made_stream.h"

namespace dsf::bench {

struct VectorStream {
  double release_ms = 0;
  std::vector<made::Piece> pieces;  // times from the vector's own zero, not from the release
  int64_t max_tokens = 16;
};

struct Expect {
  enum class What {
    kExact,  // a count or a statistic: no clock in it
    kTime,   // milliseconds
    kRate    // per second, over span_ms
  };
  std::string name;
  double want = 0;
  What what = What::kExact;
  double span_ms = 0;
  std::function<std::optional<double>(const std::vector<Request>&)> get;
};

struct Vector {
  std::string name;
  std::vector<VectorStream> streams;  // empty: statistics only
  std::vector<Expect> expects;
};

std::vector<Vector> published_vectors();

}  // namespace dsf::bench
