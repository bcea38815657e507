#include "tools/serve/backends/cuda/cuda_engine.h"

#include <algorithm>

#include "tools/serve/engine/step_check.h"

namespace dsf::serve::cuda {

Result<SessionId> CudaEngine::open() {
  const auto free = std::find(slot_used_.begin(), slot_used_.end(), false);
  if (free == slot_used_.end()) return fail(Code::kBusy, "engine", "all " + std::to_string(limits_.max_sessions) + " sessions are open", "close one or raise the limit");
  *free = true;
  const SessionId id = next_id_++;
  sessions_[id].slot = static_cast<int>(free - slot_used_.begin());
  return id;
}

void CudaEngine::close(SessionId session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  slot_used_[static_cast<size_t>(it->second.slot)] = false;
  sessions_.erase(it);
}

int64_t CudaEngine::length(SessionId session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? 0 : std::ssize(it->second.tokens);
}

Result<void> CudaEngine::check(std::span<const StepItem> items) const {
  return check_step(items, limits_, config_.vocab_size, [&](SessionId id) {
    const auto it = sessions_.find(id);
    return it == sessions_.end() ? std::nullopt : std::optional(static_cast<int64_t>(it->second.tokens.size()));
  });
}

Result<StepOutput> CudaEngine::step(std::span<const StepItem> items) {
  DSF_OK(check(items));
  if (items.empty()) return StepOutput{};
  std::vector<Row> rows;
  std::vector<int64_t> wanted;
  std::vector<std::vector<float>> engram(engram_ ? static_cast<size_t>(engram_->n_layers()) : 0);
  for (const StepItem& item : items) {
    Session& s = sessions_.at(item.session);
    const int64_t start = std::ssize(s.tokens), n = std::ssize(item.tokens);
    for (int64_t i = 0; i < n; ++i) {
      if (item.want_all_logits || (item.want_logits && i == n - 1)) wanted.push_back(std::ssize(rows));
      rows.push_back({item.tokens[static_cast<size_t>(i)], start + i, s.slot});
    }
    if (!engram_) continue;
    std::vector<int32_t> all = s.tokens;
    all.insert(all.end(), item.tokens.begin(), item.tokens.end());
    DSF_OK(engram_->append(all, n, engram));
  }
  DSF_TRY(const std::span<const float> logits, forward_->run(rows, engram, wanted));
  for (const StepItem& item : items) {
    std::vector<int32_t>& tokens = sessions_.at(item.session).tokens;
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
  }
  return StepOutput{.logits = logits, .n_rows = std::ssize(wanted)};
}

std::vector<std::pair<std::string, std::string>> CudaEngine::identity() const {
  std::vector<std::pair<std::string, std::string>> pairs = {{"backend", "cuda"}, {"weights", form_}, {"device", device_.name}};
  if (share_.world > 1) pairs.emplace_back("world_size", std::to_string(share_.world));
  if (engram_) {
    for (auto& p : engram_->identity()) pairs.push_back(std::move(p));
  }
  return pairs;
}

}  // namespace dsf::serve::cuda
