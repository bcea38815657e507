#pragma once
// Byte ranges of remote files into places of local files: several connections, a journal of finished requests, resumed
// after a kill. What `tensors` downloads with. Source: hub.md 6.1 steps 6 and 7.
//
// A request covers neighbouring segments (small gaps are read and dropped) and becomes one journal line, whose digest
// is over the bytes that were kept; resuming reads them back and compares.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dsf/hub/hub.h"
#include "dsf/io/file.h"

namespace dsf::fetch {

// Source bytes [begin, end) of a file go to offset at of output number output.
struct Segment {
  hub::FileSource* source = nullptr;
  uint64_t begin = 0, end = 0;
  size_t output = 0;
  uint64_t at = 0;
};

struct Request {
  hub::FileSource* source = nullptr;
  uint64_t begin = 0, end = 0;
  std::vector<Segment> segments;  // in order, inside [begin, end)
};

struct RangeLimits {
  uint64_t gap_bytes = 256 << 10;  // ranges this close become one request
  uint64_t request_bytes = 64 << 20;
};

// segments of one source must follow each other and be sorted by begin, without overlap.
std::vector<Request> plan_requests(const std::vector<Segment>& segments, const RangeLimits& limits = {});

struct RangeOutcome {
  uint64_t network_bytes = 0, resumed_bytes = 0;
};

// parts: open for reading and writing, of their final size. The journal stays until the caller has renamed the parts.
// identity: what must be equal for a journal to be continued. Errors: those of the Hub and of the disk.
Result<RangeOutcome> fetch_ranges(const std::vector<Request>& requests, const std::vector<io::Fd>& parts,
                                  const std::filesystem::path& journal, const std::string& identity,
                                  const std::shared_ptr<hub::Shared>& shared, int jobs,
                                  const std::function<void(uint64_t done_bytes)>& tick);

}  // namespace dsf::fetch
