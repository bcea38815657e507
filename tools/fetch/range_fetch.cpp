#include "tools/fetch/range_fetch.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "dsf/base/numeric.h"
#include "dsf/codec/journal.h"
#include "dsf/codec/sha256.h"
#include "tools/fetch/parallel.h"

namespace dsf::fetch {
namespace {

uint64_t kept_bytes(const Request& r) {
  uint64_t n = 0;
  for (const Segment& s : r.segments) n += s.end - s.begin;
  return n;
}

// Puts the bytes of a request where its segments say, whatever blocks they arrive in.
class Scatter {
 public:
  Scatter(const Request& r, const std::vector<io::Fd>& parts) : request_(r), parts_(parts), at_(r.begin) {}
  bool take(std::span<const std::byte> bytes) {
    while (!bytes.empty() && local_) {
      const Segment* s = segment_ < request_.segments.size() ? &request_.segments[segment_] : nullptr;
      if (s != nullptr && at_ == s->end) {
        ++segment_;
        continue;
      }
      const bool inside = s != nullptr && at_ >= s->begin;
      const uint64_t border = inside ? s->end : s != nullptr ? s->begin : request_.end;
      const auto block = bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), border - at_)));
      if (inside) {
        local_ = io::write_at(parts_[s->output], s->at + (at_ - s->begin), block);
        hash_.update(block);
      }
      at_ += block.size();
      bytes = bytes.subspan(block.size());
    }
    return local_.has_value();
  }
  const Result<void>& local() const { return local_; }
  codec::Digest finish() { return hash_.finish(); }

 private:
  const Request& request_;
  const std::vector<io::Fd>& parts_;
  uint64_t at_;
  size_t segment_ = 0;
  codec::Sha256 hash_;
  Result<void> local_;
};

Result<codec::Digest> read_back(const Request& r, const std::vector<io::Fd>& parts) {
  codec::Sha256 hash;
  std::vector<std::byte> buffer(kMiB);
  for (const Segment& s : r.segments) {
    for (uint64_t done = 0; done < s.end - s.begin;) {
      const std::span<std::byte> block(buffer.data(),
                                       static_cast<size_t>(std::min<uint64_t>(buffer.size(), s.end - s.begin - done)));
      DSF_OK(io::read_at(parts[s.output], s.at + done, block));
      hash.update(block);
      done += block.size();
    }
  }
  return hash.finish();
}

}  // namespace

std::vector<Request> plan_requests(const std::vector<Segment>& segments, const RangeLimits& limits) {
  std::vector<Request> out;
  for (Segment s : segments) {
    while (s.begin < s.end) {
      const bool joins = !out.empty() && out.back().source == s.source && s.begin >= out.back().end &&
                         s.begin - out.back().end <= limits.gap_bytes &&
                         s.begin < out.back().begin + limits.request_bytes;
      if (!joins) out.push_back({s.source, s.begin, s.begin, {}});
      Request& r = out.back();
      Segment piece = s;
      piece.end = std::min(s.end, r.begin + limits.request_bytes);
      r.segments.push_back(piece);
      r.end = piece.end;
      s.at += piece.end - s.begin;
      s.begin = piece.end;
    }
  }
  return out;
}

Result<RangeOutcome> fetch_ranges(const std::vector<Request>& requests, const std::vector<io::Fd>& parts,
                                  const std::filesystem::path& journal_path, const std::string& identity,
                                  const std::shared_ptr<hub::Shared>& shared, int jobs,
                                  const std::function<void(uint64_t)>& tick) {
  DSF_TRY(codec::Journal journal, codec::Journal::open(journal_path, identity));
  const std::map<uint64_t, std::string> claims = journal.claims();
  std::mutex mutex;
  std::atomic<uint64_t> done_bytes = 0;
  RangeOutcome outcome;
  const auto one = [&](hub::Hub& hub, size_t i) -> Result<void> {
    const Request& r = requests[i];
    if (const auto claim = claims.find(i); claim != claims.end()) {
      DSF_TRY(const codec::Digest now, read_back(r, parts));
      if (now.hex() == claim->second) {
        const std::lock_guard lock(mutex);
        outcome.resumed_bytes += kept_bytes(r);
        tick(done_bytes += kept_bytes(r));
        return {};
      }
    }
    Scatter scatter(r, parts);
    Result<void> got =
        hub.read(*r.source, r.begin, r.end, [&](std::span<const std::byte> b) { return scatter.take(b); });
    if (!scatter.local()) return scatter.local();
    if (!got) return got;
    const std::lock_guard lock(mutex);
    DSF_OK(journal.add(i, scatter.finish().hex()));
    outcome.network_bytes += r.end - r.begin;
    tick(done_bytes += kept_bytes(r));
    return {};
  };
  DSF_OK(for_each_with_hub(requests.size(), jobs, shared, one));
  return outcome;
}

}  // namespace dsf::fetch
