#include "tools/serve/api/generation.h"

#include <algorithm>

#include "dsf/base/time.h"

namespace dsf::serve {
namespace {

constexpr int64_t kPollUs = 100'000;  // how often a waiting thread looks whether its client is still there

ApiError error_of(const End& end) {
  switch (end.reason) {
    case EndReason::kTimedOut:
      return {503, "The request took longer than this server allows.", {}, "timeout", 5};
    case EndReason::kDrained:
      return {503, "The server is shutting down.", {}, "draining", 5};
    default:
      return {500, "The engine failed: " + end.error.what, {}, "engine_error"};
  }
}

bool is_failure(EndReason reason) {
  return reason == EndReason::kTimedOut || reason == EndReason::kDrained || reason == EndReason::kFailed;
}

// Writes server-sent events with the envelope around each choice.
class EventStream {
 public:
  EventStream(const Context& context, const Envelope& envelope, http::ResponseWriter& out)
      : context_(context), envelope_(envelope), out_(out) {}

  bool started() const { return started_; }
  void start() {
    started_ = true;
    out_.begin(200,
               {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}});
  }
  void chunk(json::Value choice, const Usage& so_far) {
    json::Value usage;
    if (envelope_.stream.continuous_usage) usage = so_far.value();
    json::Array choices;
    choices.push_back(std::move(choice));
    send(std::move(choices), std::move(usage), envelope_.stream.include_usage || envelope_.stream.continuous_usage);
  }
  void finish(const Usage& usage) {
    if (envelope_.stream.include_usage) send({}, usage.value(), true);
    out_.write("data: [DONE]\n\n");
    out_.end();
  }
  void fail(const ApiError& error) {
    data(error.body());
    out_.end();
  }
  void keepalive() { out_.write(": keepalive\n\n"); }

 private:
  void send(json::Array choices, json::Value usage, bool with_usage) {
    json::Value event = json::Object{
        {"id", envelope_.id},       {"object", envelope_.chunk_object},           {"created", envelope_.created_s},
        {"model", envelope_.model}, {"system_fingerprint", context_.fingerprint}, {"choices", std::move(choices)}};
    if (with_usage) event.set("usage", std::move(usage));
    data(event);
  }
  void data(const json::Value& value) { out_.write("data: " + json::dump(value) + "\n\n"); }

  const Context& context_;
  const Envelope& envelope_;
  http::ResponseWriter& out_;
  bool started_ = false;
};

// One response in the making.
class Driver {
 public:
  Driver(Context& context, const Envelope& envelope, std::vector<Part> parts, http::ResponseWriter& out)
      : context_(context), envelope_(envelope), parts_(std::move(parts)), out_(out), events_(context, envelope, out) {}

  void run() {
    if (!submit()) return;
    json::Array choices;
    Usage total;
    for (size_t i = 0; i < parts_.size(); ++i) {
      before_ = total;
      if (!consume(i)) return cancel_from(i);
      total += parts_[i].reply->usage();
      if (!envelope_.stream.on) choices.push_back(parts_[i].reply->whole());
    }
    if (envelope_.stream.on) {
      events_.finish(total);
      context_.metrics.request(200);
      return;
    }
    send_json(context_, out_, 200,
              json::Object{{"id", envelope_.id},
                           {"object", envelope_.object},
                           {"created", envelope_.created_s},
                           {"model", envelope_.model},
                           {"system_fingerprint", context_.fingerprint},
                           {"choices", std::move(choices)},
                           {"usage", total.value()}});
  }

 private:
  bool submit() {
    for (Part& part : parts_) {
      limits_.push_back(
          {static_cast<int64_t>(part.request.prompt.size()), part.request.max_tokens, part.request.sampling.seed});
      auto stream = context_.loop.submit(std::move(part.request));
      if (!stream) {
        cancel_from(0);
        send_error(context_, out_, from_submit(stream.error()));
        return false;
      }
      streams_.push_back(std::move(*stream));
    }
    submitted_ns_ = monotonic_ns();
    return true;
  }

  void cancel_from(size_t first) {
    for (size_t i = first; i < streams_.size(); ++i) streams_[i]->cancel();
  }

  // Reads one part to its end; false when the response is over because of it (error sent, or nobody there).
  bool consume(size_t index) {
    Part& part = parts_[index];
    Stream& stream = *streams_[index];
    GenerationRecord record;
    record.timing.submitted_ns = submitted_ns_;
    int64_t last_ns = 0, quiet_since_ns = monotonic_ns();
    while (true) {
      Batch batch = stream.wait(kPollUs);
      const int64_t now = monotonic_ns();
      if (out_.client_gone()) return gone(index, record);
      if (batch.admitted) admitted(part, record, now);
      if (!batch.prompt.empty()) part.reply->prompt(std::move(batch.prompt));
      if (!batch.tokens.empty()) {
        note_tokens(record, batch.tokens.size(), now, last_ns);
        for (const Choice& choice : batch.tokens) {
          const bool more = part.reply->token(choice);
          flush(part);
          if (!more) return ended(index, nullptr, record);
        }
      }
      if (batch.end)
        return is_failure(batch.end->reason) ? failed(index, *batch.end, record) : ended(index, &*batch.end, record);
      if (last_ns == 0 && events_.started() && now - quiet_since_ns >= context_.options.keepalive_us * 1000) {
        quiet_since_ns = now;
        events_.keepalive();
      }
    }
  }

  // The headers wait for admission, so that a refusal can still be a plain HTTP status.
  void admitted(Part& part, GenerationRecord& record, int64_t now) {
    record.timing.admitted_ns = now;
    if (!envelope_.stream.on) return;
    if (!events_.started()) events_.start();
    if (json::Value opening = part.reply->opening(); !opening.is_null())
      events_.chunk(std::move(opening), usage_so_far(part));
  }

  static void note_tokens(GenerationRecord& record, size_t n, int64_t now, int64_t& last_ns) {
    if (record.timing.first_token_ns == 0) record.timing.first_token_ns = now;
    for (size_t i = 0; last_ns != 0 && i < n; ++i)
      record.token_gaps_s.push_back(static_cast<double>(now - last_ns) / 1e9 / static_cast<double>(n));
    last_ns = now;
  }

  void flush(Part& part) {
    if (!envelope_.stream.on) return;
    for (json::Value& choice : part.reply->take_chunks()) events_.chunk(std::move(choice), usage_so_far(part));
  }

  Usage usage_so_far(const Part& part) const {
    Usage usage = before_;
    return usage += part.reply->usage();
  }

  bool ended(size_t index, const End* end, GenerationRecord& record) {
    Part& part = parts_[index];
    if (end == nullptr) streams_[index]->cancel();
    part.reply->finish(end);
    flush(part);
    part.reply->describe(record);
    report(index, record, part.reply->finish_reason(), {});
    return true;
  }

  bool failed(size_t index, const End& end, GenerationRecord& record) {
    const ApiError error = error_of(end);
    report(index, record, "error", error.message);
    if (events_.started()) {
      events_.fail(error);
      context_.metrics.request(200);
    } else {
      send_error(context_, out_, error);
    }
    return false;
  }

  bool gone(size_t index, GenerationRecord& record) {
    streams_[index]->cancel();
    report(index, record, "abort", "client closed the connection");
    context_.metrics.request(499);
    out_.abort(false);
    return false;
  }

  void report(size_t index, GenerationRecord& record, const std::string& reason, const std::string& error) {
    const Usage usage = parts_[index].reply->usage();
    record.finished_reason = reason;
    record.prompt_tokens = limits_[index].prompt;
    record.max_tokens = limits_[index].max_tokens;
    record.completion_tokens = usage.completion;
    record.timing.finished_ns = monotonic_ns();
    context_.metrics.generation(record);
    if (!context_.options.log) return;
    const auto ms = [&](int64_t ns) {
      return ns == 0 ? json::Value() : json::Value(static_cast<double>(ns - submitted_ns_) / 1e6);
    };
    json::Value line = json::Object{{"time", now_rfc3339()},
                                    {"id", envelope_.id},
                                    {"stream", envelope_.stream.on},
                                    {"prompt_tokens", record.prompt_tokens},
                                    {"completion_tokens", record.completion_tokens},
                                    {"seed", limits_[index].seed},
                                    {"admitted_ms", ms(record.timing.admitted_ns)},
                                    {"first_token_ms", ms(record.timing.first_token_ns)},
                                    {"total_ms", ms(record.timing.finished_ns)},
                                    {"finish", reason}};
    if (!error.empty()) line.set("error", error);
    context_.options.log(line);
  }

  struct Limits {
    int64_t prompt, max_tokens;
    uint64_t seed;
  };

  Context& context_;
  const Envelope& envelope_;
  std::vector<Part> parts_;
  http::ResponseWriter& out_;
  EventStream events_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::vector<Limits> limits_;
  Usage before_;  // of the parts already done
  int64_t submitted_ns_ = 0;
};

ApiError context_error(int64_t context, int64_t prompt, int64_t completion, const std::string& param) {
  const std::string where = param == "messages" ? "messages" : "prompt";
  return {400,
          "This model's maximum context length is " + std::to_string(context) + " tokens. However, you requested " +
              std::to_string(prompt + completion) + " tokens (" + std::to_string(prompt) + " in the " + where + ", " +
              std::to_string(completion) + " in the completion). Please reduce the length of the " + where +
              " or completion.",
          param, "context_length_exceeded"};
}

}  // namespace

Usage& Usage::operator+=(const Usage& other) {
  prompt += other.prompt;
  completion += other.completion;
  reasoning += other.reasoning;
  cached += other.cached;
  return *this;
}

json::Value Usage::value() const {
  return json::Object{{"prompt_tokens", prompt},
                      {"completion_tokens", completion},
                      {"total_tokens", prompt + completion},
                      {"prompt_tokens_details", json::Object{{"cached_tokens", cached}}},
                      {"completion_tokens_details", json::Object{{"reasoning_tokens", reasoning}}},
                      {"prompt_cache_hit_tokens", cached},
                      {"prompt_cache_miss_tokens", prompt - cached}};
}

ApiResult<GenerationRequest> make_request(const Context& context, const CommonParams& common,
                                          std::vector<int32_t> prompt, const std::string& param) {
  const int64_t limit = context.max_model_len();
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  if (n_prompt == 0) return refuse("the prompt must hold at least one token", param);
  if (n_prompt >= limit) return tl::unexpected(context_error(limit, n_prompt, common.max_tokens.value_or(1), param));
  int64_t max_tokens = common.max_tokens.value_or(limit - n_prompt);
  if (n_prompt + max_tokens > limit) return tl::unexpected(context_error(limit, n_prompt, max_tokens, param));
  if (context.options.max_reply > 0) max_tokens = std::min(max_tokens, context.options.max_reply);
  GenerationRequest out;
  out.sampling = common.sampling;
  out.sampling.seed = common.seed.value_or(0);
  if (!common.seed) out.sampling.seed = seed_for(prompt, context.options.deterministic_seed ? 0 : random_u64());
  out.max_tokens = max_tokens;
  out.min_tokens = std::min(common.min_tokens, max_tokens);
  out.ignore_eos = common.ignore_eos;
  out.stop_ids = common.stop_ids;
  out.prompt = std::move(prompt);
  const int64_t now = monotonic_ns();
  if (context.options.queue_timeout_us > 0) out.queue_deadline_ns = now + context.options.queue_timeout_us * 1000;
  if (context.options.request_timeout_us > 0) out.deadline_ns = now + context.options.request_timeout_us * 1000;
  return out;
}

json::Value chat_logprob(const tokenizer::Tokenizer& tokenizer, const Choice& choice) {
  const auto entry = [&](int32_t id, double logprob) {
    const std::string_view bytes = tokenizer.bytes(id);
    json::Value numbers = json::Value::array();
    for (const char c : bytes) numbers.push(static_cast<int>(static_cast<unsigned char>(c)));
    // JSON has no infinity; -9999 is what other servers say for it.
    return json::Value(json::Object{{"token", tokenizer::utf8_lossy(bytes)},
                                    {"logprob", std::max(logprob, -9999.0)},
                                    {"bytes", std::move(numbers)}});
  };
  json::Value top = json::Value::array();
  for (const TokenLogprob& t : choice.top) top.push(entry(t.id, t.logprob));
  json::Value out = entry(choice.id, choice.logprob);
  out.set("top_logprobs", std::move(top));
  return out;
}

void generate(Context& context, const Envelope& envelope, std::vector<Part> parts, http::ResponseWriter& out) {
  Driver(context, envelope, std::move(parts), out).run();
}

}  // namespace dsf::serve
