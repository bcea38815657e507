#include "tools/verify/refetch.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

namespace dsf::verify {
namespace {

// One range, however many attempts it takes; what has arrived is kept.
Result<void> fetch_range(hub::Shared& shared, hub::Hub& hub, hub::FileSource& source, Range range, const io::Fd& out) {
  std::optional<Error> write_error;
  uint64_t at = range.begin;
  for (int failures = 0; at < range.end;) {
    const uint64_t before = at;
    const auto outcome = hub.read_range(source, at, range.end, [&](std::span<const std::byte> data) {
      if (const auto written = io::write_at(out, at, data); !written) {
        write_error = written.error();
        return false;
      }
      at += data.size();
      return !shared.stopped();
    });
    if (write_error) return fail(*write_error);
    if (!outcome) continue;  // the loop ends when all has arrived
    if (at > before)
      failures = 0;
    else if (outcome->counts)
      ++failures;
    if (!outcome->retry || failures >= shared.retry.attempts) return fail(outcome->error);
    if (!shared.wait(outcome->wait_us >= 0 ? outcome->wait_us : shared.backoff_us(failures)))
      return fail(Code::kLocal, out.path().string(), "stopped by a signal", "run it again", "stopped");
  }
  return {};
}

}  // namespace

Result<void> fetch_ranges(const std::shared_ptr<hub::Shared>& shared, hub::FileSource& source,
                          const std::vector<Range>& ranges, int connections, const io::Fd& out) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first;
  const auto worker = [&] {
    hub::Hub hub(shared);
    for (size_t i = next++; i < ranges.size(); i = next++) {
      const auto done = fetch_range(*shared, hub, source, ranges[i], out);
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (!first) first = done.error();
      next = ranges.size();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t t = 1; t < std::min(ranges.size(), static_cast<size_t>(connections)); ++t) threads.emplace_back(worker);
    worker();
  }
  if (first) return fail(std::move(*first));
  return {};
}

}  // namespace dsf::verify
