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

// Reading the step's Engram rows begins here; run() waits for them table by table.
void CudaEngine::start_engram(std::span<const StepItem> items) {
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(engram_->n_layers()));
  for (const StepItem& item : items) {
    std::vector<int32_t> all = sessions_.at(item.session).tokens;
    all.insert(all.end(), item.tokens.begin(), item.tokens.end());
    const auto located = engram_->locate(all, std::ssize(item.tokens));
    for (size_t t = 0; t < rows.size(); ++t) rows[t].insert(rows[t].end(), located[t].begin(), located[t].end());
  }
  std::vector<std::span<std::byte>> room;
  for (size_t t = 0; t < rows.size(); ++t) room.push_back(forward_->engram_input(t));
  reader_->start(std::move(rows), std::move(room));
}

Result<StepOutput> CudaEngine::step(std::span<const StepItem> items) {
  DSF_OK(check(items));
  if (items.empty()) return StepOutput{};
  std::vector<Row> rows;
  std::vector<int64_t> wanted, choosing;
  std::vector<ops::TokenChoice> choices;
  for (const StepItem& item : items) {
    Session& s = sessions_.at(item.session);
    const int64_t start = std::ssize(s.tokens), n = std::ssize(item.tokens);
    const bool all = item.want_all_logits && item.choose == nullptr, last = item.want_logits && item.choose == nullptr;
    for (int64_t i = 0; i < n; ++i) {
      if (all || (last && i == n - 1)) wanted.push_back(std::ssize(rows));
      rows.push_back({item.tokens[static_cast<size_t>(i)], start + i, s.slot});
    }
    if (item.choose == nullptr) continue;
    const ChoiceParams& c = *item.choose;
    for (int64_t i = 0; i < item.n_choose; ++i) {
      choosing.push_back(std::ssize(rows) - item.n_choose + i);
      choices.push_back({c.temperature, c.top_p, c.min_p, c.top_k, c.seed, c.position + static_cast<uint64_t>(i)});
    }
  }
  const int64_t n_host = std::ssize(wanted);
  wanted.insert(wanted.end(), choosing.begin(), choosing.end());
  if (reader_) start_engram(items);
  const auto run = forward_->run(rows, [this](size_t table) { return reader_->wait(table); }, {wanted, n_host, choices});
  if (reader_) reader_->finish();
  if (!run) return fail(run.error());
  for (const StepItem& item : items) {
    std::vector<int32_t>& tokens = sessions_.at(item.session).tokens;
    tokens.insert(tokens.end(), item.tokens.begin(), item.tokens.end());
  }
  StepOutput out{.logits = run->logits, .n_rows = n_host, .chosen = {run->ids.begin(), run->ids.end()}};
  DSF_OK(finish_choices(items, n_host, out.chosen));
  return out;
}

// Choices the device left open, because the filters keep more than it looks at, are made here; -1 where there are none to make.
Result<void> CudaEngine::finish_choices(std::span<const StepItem> items, int64_t n_host, std::vector<int32_t>& chosen) {
  size_t at = 0;
  for (const StepItem& item : items) {
    if (item.choose == nullptr) continue;
    ChoiceParams params = *item.choose;
    for (int64_t i = 0; i < item.n_choose; ++i, ++params.position, ++at) {
      int32_t& id = chosen[at];
      if (id == ops::kUndecided) {
        DSF_TRY(const std::span<const float> logits, forward_->fetch_logits(n_host + static_cast<int64_t>(at)));
        id = chooser_.choose(logits, params).value_or(-1);
      }
      id = std::max(id, -1);
    }
  }
  return {};
}

// Rings keep max_step_tokens rows more than a window, and everything else is addressed by position.
Result<void> CudaEngine::truncate(SessionId session, int64_t length) {
  const std::string subject = "session " + std::to_string(session);
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return fail(Code::kUsage, subject, "is not open");
  std::vector<int32_t>& tokens = it->second.tokens;
  if (length < 0 || length > std::ssize(tokens) || std::ssize(tokens) - length > limits_.max_step_tokens)
    return fail(Code::kUsage, subject, "cannot be cut to length " + std::to_string(length));
  tokens.resize(static_cast<size_t>(length));
  return {};
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
