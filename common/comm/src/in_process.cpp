#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>

#include "dsf/base/check.h"
#include "dsf/comm/collective.h"

namespace dsf::comm {
namespace {

enum class Op : int { kSum, kGather, kBroadcast, kBarrier };
constexpr const char* kOpNames[] = {"all_reduce_sum", "all_gather", "broadcast", "barrier"};

struct Call {
  Op op{};
  size_t bytes = 0;
  int root = 0;
  bool operator==(const Call&) const = default;
};

// What the ranks share. One exchange: everybody publishes its call and buffer, waits for all, reads the others' buffers, waits again so
// that nobody's buffer goes away while it is read.
class Group {
 public:
  explicit Group(int world) : world_(world), calls_(static_cast<size_t>(world)), buffers_(calls_.size()), said_(calls_.size()) {}
  int world() const { return world_; }

  template <class Read>
  Result<void> exchange(int rank, const Phase& phase, const Call& call, std::span<const std::byte> own, Read read) {
    std::unique_lock lock(mutex_);
    if (error_) return fail(*error_);
    calls_[static_cast<size_t>(rank)] = call;
    buffers_[static_cast<size_t>(rank)] = own;
    DSF_OK(meet(lock, rank, phase, call));
    for (int r = 0; r < world_; ++r)
      if (calls_[static_cast<size_t>(r)] != call) return raise(divergence(rank, r));
    lock.unlock();
    read(std::span<const std::span<const std::byte>>(buffers_));
    lock.lock();
    return meet(lock, rank, phase, call);
  }

  Result<void> tell(std::span<const std::byte> message) {
    const std::lock_guard lock(mutex_);
    if (error_) return fail(*error_);
    for (size_t r = 1; r < said_.size(); ++r) said_[r].emplace_back(message.begin(), message.end());
    everybody_.notify_all();
    return {};
  }

  Result<std::vector<std::byte>> hear(int rank) {
    std::unique_lock lock(mutex_);
    auto& mine = said_[static_cast<size_t>(rank)];
    everybody_.wait(lock, [&] { return !mine.empty() || error_; });
    if (mine.empty()) return fail(*error_);
    std::vector<std::byte> message = std::move(mine.front());
    mine.pop_front();
    return message;
  }

  Result<void> check() const {
    const std::lock_guard lock(mutex_);
    return error_ ? Result<void>(fail(*error_)) : Result<void>{};
  }

  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    (void)raise(Error{Code::kRemote, "ranks", "aborted: " + reason, "", "aborted"});
  }

 private:
  Unexpected raise(Error e) {
    if (!error_) error_ = std::move(e);
    everybody_.notify_all();
    return fail(*error_);
  }

  Error divergence(int rank, int other) const {
    const Call& a = calls_[static_cast<size_t>(rank)];
    const Call& b = calls_[static_cast<size_t>(other)];
    const auto text = [](int r, const Call& c) { return "rank " + std::to_string(r) + " calls " + kOpNames[static_cast<int>(c.op)] + " of " + std::to_string(c.bytes) + " bytes"; };
    return {Code::kRemote, "exchange " + std::to_string(exchanges_ / 2), text(rank, a) + ", " + text(other, b), "all ranks must run the same plan", "divergence"};
  }

  // A barrier under the lock; the last to arrive opens it.
  Result<void> meet(std::unique_lock<std::mutex>& lock, int rank, const Phase& phase, const Call& call) {
    const uint64_t mine = exchanges_;
    if (++arrived_ == world_) {
      arrived_ = 0;
      ++exchanges_;
      everybody_.notify_all();
      return error_ ? Result<void>(fail(*error_)) : Result<void>{};
    }
    const bool in_time = everybody_.wait_for(lock, std::chrono::microseconds(phase.timeout_us), [&] { return exchanges_ != mine || error_; });
    if (error_) return fail(*error_);
    if (!in_time)
      return raise(Error{Code::kRemote, phase.name + " " + std::to_string(phase.step) + ", exchange " + std::to_string(mine / 2), "rank " + std::to_string(rank) + " waited " + std::to_string(phase.timeout_us / 1000) + " ms in " +
                         kOpNames[static_cast<int>(call.op)] + " for " + std::to_string(world_ - arrived_) + " of " + std::to_string(world_) + " ranks", "look at the other ranks' logs", "timeout"});
    return {};
  }

  const int world_;
  mutable std::mutex mutex_;  // guards everything below; the buffers' contents are read between the two meetings of an exchange
  std::condition_variable everybody_;
  std::vector<Call> calls_;
  std::vector<std::span<const std::byte>> buffers_;
  std::vector<std::deque<std::vector<std::byte>>> said_;  // [rank] what it has not heard yet
  int arrived_ = 0;
  uint64_t exchanges_ = 0;  // meetings passed: two an exchange
  std::optional<Error> error_;
};

class InProcess final : public Communicator {
 public:
  InProcess(std::shared_ptr<Group> group, int rank, int64_t timeout_us) : group_(std::move(group)), rank_(rank), phase_{"start", 0, timeout_us} {}
  int rank() const override { return rank_; }
  int world() const override { return group_->world(); }

  Result<void> all_reduce_sum(std::span<float> values) override {
    std::vector<float> sum(values.size());
    DSF_OK(group_->exchange(rank_, phase_, {Op::kSum, values.size_bytes(), 0}, std::as_bytes(values), [&](auto buffers) {
      for (size_t r = 0; r < buffers.size(); ++r) {
        const auto* v = reinterpret_cast<const float*>(buffers[r].data());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] = r == 0 ? v[i] : sum[i] + v[i];
      }
    }));
    std::copy(sum.begin(), sum.end(), values.begin());
    return {};
  }

  Result<void> all_gather(std::span<const std::byte> own, std::span<std::byte> out) override {
    DSF_CHECK(out.size() == own.size() * static_cast<size_t>(world()), "all_gather output holds every rank's bytes");
    return group_->exchange(rank_, phase_, {Op::kGather, own.size(), 0}, own, [&](auto buffers) {
      for (size_t r = 0; r < buffers.size(); ++r) std::memcpy(out.data() + r * own.size(), buffers[r].data(), own.size());
    });
  }

  Result<void> broadcast(std::span<std::byte> bytes, int root) override {
    return group_->exchange(rank_, phase_, {Op::kBroadcast, bytes.size(), root}, bytes, [&](auto buffers) {
      if (rank_ != root) std::memcpy(bytes.data(), buffers[static_cast<size_t>(root)].data(), bytes.size());
    });
  }

  Result<void> barrier() override {
    return group_->exchange(rank_, phase_, {Op::kBarrier, 0, 0}, {}, [](auto) {});
  }

  Result<void> tell(std::span<const std::byte> message) override { return group_->tell(message); }
  Result<std::vector<std::byte>> hear() override { return group_->hear(rank_); }
  void enter(const Phase& phase) override { phase_ = phase; }
  Result<void> check() const override { return group_->check(); }

  void abort(const std::string& reason) override { group_->abort(reason); }

 private:
  std::shared_ptr<Group> group_;  // shared: the group lives as long as its last rank
  int rank_;
  Phase phase_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> in_process_group(int world, int64_t timeout_us) {
  DSF_CHECK(world >= 1, "a group has at least one rank");
  const auto group = std::make_shared<Group>(world);
  std::vector<std::unique_ptr<Communicator>> out;
  for (int r = 0; r < world; ++r) out.push_back(std::make_unique<InProcess>(group, r, timeout_us));
  return out;
}

std::unique_ptr<Communicator> single_rank() { return std::move(in_process_group(1).front()); }

}  // namespace dsf::comm
