#include "tools/serve/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "dsf/base/check.h"

namespace dsf::serve {
namespace {

// Rows of the vocabulary's width are big: 64 of them are 33 MB in the release.
constexpr size_t kPromptLogprobChunk = 64;

}  // namespace

void Scheduler::add(GenerationRequest request, std::shared_ptr<Stream> stream) {
  DSF_CHECK(!request.prompt.empty(), "a request without prompt tokens");
  auto job = std::make_unique<Job>(std::move(request), std::move(stream));
  job->pending = job->request.prompt;
  job->timing.submitted_ns = options_.now_ns();
  waiting_.push_back(std::move(job));
}

Result<bool> Scheduler::step() {
  const int64_t now = options_.now_ns();
  drop_late(now);
  admit(now);
  DSF_OK(plan());
  std::vector<StepItem> items;
  for (const auto& job : running_) {
    if (job->take == 0) continue;
    const bool last = job->take == job->owed();
    const bool prompt_rows = job->request.prompt_logprobs && job->generated == 0;
    items.push_back(
        {job->session, std::span(job->pending).subspan(job->next, job->take), prompt_rows, last || prompt_rows});
    job->engine_chooses = last && !prompt_rows && engine_may_choose(*job);
    if (!job->engine_chooses) continue;
    // After the token that is owed come its drafts; each of them is a row that chooses.
    items.back().n_choose = 1 + job->drafts;
    job->choice =
        job->sampler.choice_params(static_cast<uint64_t>(job->held) + job->take - static_cast<uint64_t>(job->drafts));
    items.back().choose = &job->choice;
  }
  if (items.empty()) return false;
  const auto output = engine_.step(items);
  if (!output) return fail(output.error());
  ++counters_.steps;
  if (const auto done = consume(*output); !done) return fail(done.error());
  std::stable_partition(running_.begin(), running_.end(), [](const auto& job) { return job->take == 0; });
  deliver_ends();
  return true;
}

void Scheduler::drop_late(int64_t now) {
  const auto reason = [&](const Job& job) -> std::optional<EndReason> {
    if (job.stream->cancelled()) return EndReason::kCancelled;
    if (job.request.deadline_ns != 0 && now >= job.request.deadline_ns) return EndReason::kTimedOut;
    if (job.session < 0 && job.request.queue_deadline_ns != 0 && now >= job.request.queue_deadline_ns)
      return EndReason::kTimedOut;
    return std::nullopt;
  };
  for (const auto& job : waiting_) {
    if (const auto why = reason(*job)) end(*job, *why);
  }
  for (const auto& job : running_) {
    if (const auto why = reason(*job)) end(*job, *why);
  }
  deliver_ends();
}

void Scheduler::admit(int64_t now) {
  const auto limit = static_cast<size_t>(std::min(options_.max_running, engine_.limits().max_sessions));
  while (!waiting_.empty() && running_.size() < limit) {
    const auto session = engine_.open();
    if (!session) {
      if (session.error().code == Code::kBusy) break;
      end(*waiting_.front(), EndReason::kFailed, -1, session.error());
      waiting_.pop_front();
      continue;
    }
    auto job = std::move(waiting_.front());
    waiting_.pop_front();
    job->session = *session;
    job->timing.admitted_ns = now;
    job->stream->admit();
    if (job->request.steering.active && job->request.steering.trigger < 0) start_steering(*job);
    if (!job->ended) running_.push_back(std::move(job));
  }
  deliver_ends();
}

// Decides how many tokens each running request appends in this step.
Result<void> Scheduler::plan() {
  auto budget = static_cast<size_t>(engine_.limits().max_step_tokens);
  for (const auto& job : running_) {
    job->take = job->owed() == 1 && budget > 0 && job->stream->has_room() ? 1 : 0;
    budget -= job->take;
  }
  for (const auto& job : running_) {
    if (job->take == 0 || budget == 0) continue;
    DSF_OK(propose(*job, static_cast<int64_t>(budget)));
    job->take += static_cast<size_t>(job->drafts);
    budget -= static_cast<size_t>(job->drafts);
  }
  for (const auto& job : running_) {
    if (job->owed() <= 1 || job->take > 0 || budget == 0 || !job->stream->has_room()) continue;
    size_t most = std::min(budget, static_cast<size_t>(options_.prefill_chunk));
    if (job->request.prompt_logprobs) most = std::min(most, kPromptLogprobChunk);
    job->take = std::min(job->owed(), most);
    budget -= job->take;
  }
  return {};
}

// Appends drafts to the one token the job owes: the step then chooses after each of them, and take_choices keeps those
// that were chosen anyway.
Result<void> Scheduler::propose(Job& job, int64_t budget) {
  if (options_.speculative == 0 || !engine_.has_drafter() || job.generated == 0 || job.held == 0) return {};
  if (!engine_may_choose(job) || job.request.steering.active) return {};
  const int64_t most = std::min({budget, options_.speculative, job.request.max_tokens - job.generated - 1,
                                 engine_.limits().max_model_len - job.held - 1});
  if (most <= 0) return {};
  DSF_TRY(const DraftOutput draft, engine_.draft(job.session, job.pending.back()));
  job.drafts = std::min(most, std::ssize(draft.ids));
  job.pending.insert(job.pending.end(), draft.ids.begin(), draft.ids.begin() + job.drafts);
  return {};
}

// Nothing but the raw logits and the request's numbers decides the next token.
bool Scheduler::engine_may_choose(const Job& job) const {
  return engine_.chooses() && job.sampler.plain() && !job.steering && job.generated >= job.request.min_tokens;
}

Result<void> Scheduler::consume(const StepOutput& output) {
  const int64_t width = engine_.config().vocab_size;
  const float* row = output.logits.data();
  int64_t rows_left = output.n_rows;
  auto chosen = output.chosen.begin();
  for (const auto& job : running_) {
    if (job->take == 0) continue;
    const auto taken = static_cast<int64_t>(job->take);
    const int64_t first = job->held;
    job->next += job->take;
    job->held += taken;
    if (first < static_cast<int64_t>(job->request.prompt.size())) counters_.prompt_tokens += taken;
    const bool prompt_rows = job->request.prompt_logprobs && job->generated == 0;
    const int64_t n_rows = prompt_rows ? taken : job->owed() == 0 && !job->engine_chooses ? 1 : 0;
    if (n_rows > rows_left) return fail(Code::kBug, "engine", "fewer logits than asked for");
    if (prompt_rows) after_prompt_rows(*job, row, n_rows, first);
    if (job->engine_chooses) {
      const int64_t n = 1 + job->drafts;
      if (output.chosen.end() - chosen < n) return fail(Code::kBug, "engine", "fewer tokens than asked for");
      DSF_OK(take_choices(*job, {chosen, chosen + n}));
      chosen += n;
    } else if (job->owed() == 0) {
      sample(*job, {row + (n_rows - 1) * width, static_cast<size_t>(width)});
    }
    row += n_rows * width;
    rows_left -= n_rows;
  }
  return {};
}

// Row i predicts prompt token first + i + 1.
void Scheduler::after_prompt_rows(Job& job, const float* rows, int64_t n_rows, int64_t first) {
  const auto width = static_cast<size_t>(engine_.config().vocab_size);
  std::vector<Choice> choices;
  for (int64_t i = 0; i < n_rows; ++i) {
    const auto next = static_cast<size_t>(first + i + 1);
    if (next >= job.request.prompt.size()) break;
    choices.push_back(describe({rows + static_cast<size_t>(i) * width, width}, job.request.prompt[next],
                               std::max(0, job.request.sampling.top_logprobs)));
  }
  job.stream->push_prompt(std::move(choices));
}

void Scheduler::sample(Job& job, std::span<const float> row) {
  const auto position = static_cast<uint64_t>(job.held);
  const bool filtered = job.steering && job.request.steering.filter->allowed(allowed_);
  std::vector<int32_t> masked;
  if (job.generated < job.request.min_tokens) {
    masked = job.request.stop_ids;
    masked.push_back(static_cast<int32_t>(engine_.config().eos_token_id));
  }
  // A filter that leaves only an end wins over min_tokens.
  const auto is_masked = [&](int32_t id) { return std::find(masked.begin(), masked.end(), id) != masked.end(); };
  if (filtered && std::all_of(allowed_.begin(), allowed_.end(), is_masked)) masked.clear();
  auto choice = job.sampler.pick(row, position, masked, filtered ? &allowed_ : nullptr);
  if (!choice) return end(job, EndReason::kFailed, -1, choice.error());
  append(job, std::move(*choice));
}

// chosen[i] follows the owed token and i drafts. It counts as long as those drafts are what was chosen before them, so
// the reply is the one that would have come without drafts.
Result<void> Scheduler::take_choices(Job& job, std::span<const int32_t> chosen) {
  const int64_t drafts = std::exchange(job.drafts, 0), held = job.held - drafts;
  const std::vector<int32_t> proposed(job.pending.end() - drafts, job.pending.end());
  counters_.drafted_tokens += drafts;
  auto& drafted_at = counters_.drafted_at;
  auto& accepted_at = counters_.accepted_at;
  if (static_cast<int64_t>(drafted_at.size()) < drafts) {
    drafted_at.resize(static_cast<size_t>(drafts));
    accepted_at.resize(static_cast<size_t>(drafts));
  }
  for (int64_t i = 0; i < drafts; ++i) ++drafted_at[static_cast<size_t>(i)];
  int64_t kept = 0;
  while (true) {
    const int32_t id = chosen[static_cast<size_t>(kept)];
    if (id >= 0)
      append(job, Choice{id, 0, {}});
    else
      end(job, EndReason::kFailed, -1, Error{Code::kBug, "engine", "logits are not finite", {}, "bad_logits"});
    if (job.ended || kept == drafts || proposed[static_cast<size_t>(kept)] != id) break;
    ++accepted_at[static_cast<size_t>(kept)];
    ++kept, ++counters_.accepted_tokens;
  }
  if (job.ended || kept == drafts) return {};
  job.held = held + kept;
  return engine_.truncate(job.session, job.held);
}

// The token that follows what the session holds.
void Scheduler::append(Job& job, Choice choice) {
  job.pending.clear();
  job.next = 0;
  const int32_t id = choice.id;
  if (job.steering) job.request.steering.filter->commit(id);
  accept(job, std::move(choice));
  const Steering& steering = job.request.steering;
  if (!job.ended && steering.active && steering.trigger == id) start_steering(job);
}

// One more token of the reply: it goes to the consumer and, unless the reply ends here, to the session in the next
// step.
void Scheduler::accept(Job& job, Choice choice) {
  const int32_t id = choice.id;
  ++job.generated;
  ++counters_.generated_tokens;
  if (job.timing.first_token_ns == 0) job.timing.first_token_ns = options_.now_ns();
  job.sampler.commit(id);
  job.pending.push_back(id);
  const auto& stops = job.request.stop_ids;
  const auto total = static_cast<int64_t>(job.request.prompt.size()) + job.generated;
  const auto last = [&](EndReason reason, int32_t stop_token) { end(job, reason, stop_token, {}, std::move(choice)); };
  if (id == engine_.config().eos_token_id && !job.request.ignore_eos) return last(EndReason::kEos, -1);
  if (std::find(stops.begin(), stops.end(), id) != stops.end()) return last(EndReason::kStopToken, id);
  if (job.generated >= job.request.max_tokens || total >= engine_.limits().max_model_len)
    return last(EndReason::kLength, -1);
  job.stream->push(std::move(choice));
}

void Scheduler::start_steering(Job& job) {
  Steering& steering = job.request.steering;
  steering.active = false;
  for (const int32_t id : steering.forced) {
    if (!job.ended) accept(job, Choice{id, 0, {}});
  }
  job.steering = steering.filter != nullptr;
}

void Scheduler::end(Job& job, EndReason reason, int32_t stop_token, const Error& error, std::optional<Choice> last) {
  if (job.ended) return;
  job.ended = true;
  job.timing.finished_ns = options_.now_ns();
  if (job.session >= 0) engine_.close(job.session);
  ++counters_.ended[reason];
  ends_.push_back({job.stream, std::move(last), End{reason, stop_token, error, job.timing}});
}

void Scheduler::deliver_ends() {
  if (ends_.empty()) return;
  std::erase_if(waiting_, [](const auto& job) { return job->ended; });
  std::erase_if(running_, [](const auto& job) { return job->ended; });
  if (options_.before_ends) options_.before_ends();
  for (auto& [stream, last, end] : ends_) stream->finish(std::move(end), std::move(last));
  ends_.clear();
}

void Scheduler::end_all(EndReason reason, const Error& error) {
  for (const auto& job : waiting_) end(*job, reason, -1, error);
  for (const auto& job : running_) end(*job, reason, -1, error);
  deliver_ends();
}

SchedulerCounters Scheduler::counters() const {
  SchedulerCounters out = counters_;
  out.running = static_cast<int64_t>(running_.size());
  out.waiting = static_cast<int64_t>(waiting_.size());
  const auto older = [&](const auto& job) {
    const int64_t t = job->timing.submitted_ns;
    if (out.oldest_submitted_ns == 0 || t < out.oldest_submitted_ns) out.oldest_submitted_ns = t;
    out.held_tokens += job->held;
  };
  std::for_each(running_.begin(), running_.end(), older);
  std::for_each(waiting_.begin(), waiting_.end(), older);
  return out;
}

}  // namespace dsf::serve
