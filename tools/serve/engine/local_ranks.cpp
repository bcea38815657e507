#include "tools/serve/engine/local_ranks.h"

#include <future>
#include <thread>
#include <vector>

namespace dsf::serve {
namespace {

using Open = std::function<Result<std::unique_ptr<Engine>>(comm::Communicator&)>;

// Rank 0's leader, with the group and the threads of the others. Members die in reverse order: the leader says stop,
// the threads end, the communicators go last.
class LocalRanks final : public Engine {
 public:
  explicit LocalRanks(int world) : group_(comm::in_process_group(world)) {}

  Result<void> start(const Open& open, const LockstepOptions& options) {
    std::vector<std::future<Result<void>>> opened;
    for (size_t r = 1; r < group_.size(); ++r) {
      std::promise<Result<void>> promise;
      opened.push_back(promise.get_future());
      others_.emplace_back([this, r, &open, options, promise = std::move(promise)]() mutable {
        comm::Communicator& comm = *group_[r];
        auto engine = open(comm);
        promise.set_value(engine ? Result<void>{} : Result<void>(fail(engine.error())));
        if (engine)
          (void)follow(**engine, comm, options);  // its error has reached rank 0 through the group
        else
          comm.abort(engine.error().line());
      });
    }
    auto own = open(*group_[0]);
    if (!own) group_[0]->abort(own.error().line());
    Result<void> all = own ? Result<void>{} : Result<void>(fail(own.error()));
    for (auto& f : opened)
      if (auto r = f.get(); all && !r) all = std::move(r);
    if (own) leader_ = std::make_unique<Leader>(std::move(*own), *group_[0], options);
    return all;
  }

  const model::Config& config() const override { return leader_->config(); }
  const EngineLimits& limits() const override { return leader_->limits(); }
  Result<SessionId> open() override { return leader_->open(); }
  void close(SessionId session) override { leader_->close(session); }
  int64_t length(SessionId session) const override { return leader_->length(session); }
  Result<StepOutput> step(std::span<const StepItem> items) override { return leader_->step(items); }
  std::vector<std::pair<std::string, std::string>> identity() const override { return leader_->identity(); }

 private:
  std::vector<std::unique_ptr<comm::Communicator>> group_;
  std::vector<std::jthread> others_;
  std::unique_ptr<Leader> leader_;
};

}  // namespace

Result<std::unique_ptr<Engine>> open_local_ranks(int world, const Open& open, LockstepOptions options) {
  auto ranks = std::make_unique<LocalRanks>(world);
  DSF_OK(ranks->start(open, options));
  return std::unique_ptr<Engine>(std::move(ranks));
}

}  // namespace dsf::serve
