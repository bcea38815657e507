#include "tools/serve/api/generation.h"

#include <algorithm>

#include "dsf/base/time.h"
#include "tools/serve/grammar/grammar_filter.h"

namespace dsf::serve {
namespace {

constexpr int64_t kPollUs = 100'000;       // how often a waiting thread looks whether its client is still there
constexpr int64_t kPollSeveralUs = 5'000;  // how long the tokens of one part may wait for those of the first

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

// One response in the making. Its parts run side by side and are read in turn.
class Driver {
 public:
  Driver(Context& context, const Envelope& envelope, std::vector<Part> parts, http::ResponseWriter& out)
      : context_(context), envelope_(envelope), parts_(std::move(parts)), out_(out), events_(context, envelope, out) {}

  void run() {
    if (!submit()) return;
    quiet_since_ns_ = submitted_ns_;
    while (n_open() > 0) {
      // Whoever waits, waits for the first open part; the others have usually moved in the same step of the engine.
      int64_t wait_us = n_open() > 1 ? kPollSeveralUs : kPollUs;
      for (size_t i = 0; i < parts_.size(); ++i) {
        if (lanes_[i].closed) continue;
        if (!read(i, wait_us)) return cancel_all();
        wait_us = 0;
      }
      keep_alive();
    }
    if (envelope_.stream.on) {
      events_.finish(usage());
      context_.metrics.request(200);
      return;
    }
    json::Array choices;
    for (const Part& part : parts_) choices.push_back(part.reply->whole());
    send_json(context_, out_, 200,
              json::Object{{"id", envelope_.id},
                           {"object", envelope_.object},
                           {"created", envelope_.created_s},
                           {"model", envelope_.model},
                           {"system_fingerprint", context_.fingerprint},
                           {"choices", std::move(choices)},
                           {"usage", usage().value()}});
  }

 private:
  struct Lane {  // what is known of one part's run
    std::shared_ptr<Stream> stream;
    int64_t prompt = 0, max_tokens = 0;
    uint64_t seed = 0;
    GenerationRecord record;
    int64_t last_ns = 0;
    bool admitted = false, closed = false;
  };

  bool submit() {
    for (Part& part : parts_) {
      Lane lane;
      lane.prompt = static_cast<int64_t>(part.request.prompt.size());
      lane.max_tokens = part.request.max_tokens;
      lane.seed = part.request.sampling.seed;
      auto stream = context_.loop.submit(std::move(part.request));
      if (!stream) {
        cancel_all();
        send_error(context_, out_, from_submit(stream.error()));
        return false;
      }
      lane.stream = std::move(*stream);
      lanes_.push_back(std::move(lane));
    }
    submitted_ns_ = monotonic_ns();
    for (Lane& lane : lanes_) lane.record.timing.submitted_ns = submitted_ns_;
    return true;
  }

  int64_t n_open() const {
    return std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.closed; });
  }
  void cancel_all() {
    for (const Lane& lane : lanes_) {
      if (!lane.closed) lane.stream->cancel();
    }
  }

  // What has come for one part; false when the response is over because of it (error sent, or nobody there).
  bool read(size_t index, int64_t wait_us) {
    Part& part = parts_[index];
    Lane& lane = lanes_[index];
    Batch batch = lane.stream->wait(wait_us);
    const int64_t now = monotonic_ns();
    if (out_.client_gone()) return gone(index);
    if (batch.admitted) admitted(index, now);
    if (!batch.prompt.empty()) part.reply->prompt(std::move(batch.prompt));
    if (!batch.tokens.empty()) {
      note_tokens(lane, batch.tokens.size(), now);
      for (const Choice& choice : batch.tokens) {
        if (!part.reply->token(choice)) return ended(index, nullptr);
        // The last token's chunk waits for the end, which may free text that was held back: no more chunks than tokens.
        if (&choice != &batch.tokens.back() || !batch.end) flush(part);
      }
    }
    if (!batch.end) return true;
    if (!is_failure(batch.end->reason)) return ended(index, &*batch.end);
    flush(part);
    return failed(index, *batch.end);
  }

  // The headers wait for admission, so that a refusal can still be a plain HTTP status.
  void admitted(size_t index, int64_t now) {
    lanes_[index].admitted = true;
    lanes_[index].record.timing.admitted_ns = now;
    if (!envelope_.stream.on) return;
    if (!events_.started()) events_.start();
    if (json::Value opening = parts_[index].reply->opening(); !opening.is_null())
      events_.chunk(std::move(opening), usage());
  }

  void note_tokens(Lane& lane, size_t n, int64_t now) {
    any_token_ = true;
    if (lane.record.timing.first_token_ns == 0) lane.record.timing.first_token_ns = now;
    for (size_t i = 0; lane.last_ns != 0 && i < n; ++i)
      lane.record.token_gaps_s.push_back(static_cast<double>(now - lane.last_ns) / 1e9 / static_cast<double>(n));
    lane.last_ns = now;
  }

  void keep_alive() {
    const int64_t now = monotonic_ns();
    if (any_token_ || !events_.started() || now - quiet_since_ns_ < context_.options.keepalive_us * 1000) return;
    quiet_since_ns_ = now;
    events_.keepalive();
  }

  void flush(Part& part) {
    if (!envelope_.stream.on) return;
    for (json::Value& choice : part.reply->take_chunks()) events_.chunk(std::move(choice), usage());
  }

  // Of what has been admitted. The choices of one prompt share it.
  Usage usage() const {
    Usage out;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!lanes_[i].admitted) continue;
      Usage mine = parts_[i].reply->usage();
      if (!parts_[i].first_of_prompt) mine.prompt = mine.cached = 0;
      out += mine;
    }
    return out;
  }

  bool ended(size_t index, const End* end) {
    Part& part = parts_[index];
    if (end == nullptr) lanes_[index].stream->cancel();
    part.reply->finish(end);
    flush(part);
    part.reply->describe(lanes_[index].record);
    close(index, part.reply->finish_reason(), {});
    return true;
  }

  bool failed(size_t index, const End& end) {
    const ApiError error = error_of(end);
    close(index, "error", error.message);
    if (events_.started()) {
      events_.fail(error);
      context_.metrics.request(200);
    } else {
      send_error(context_, out_, error);
    }
    return false;
  }

  bool gone(size_t index) {
    lanes_[index].stream->cancel();
    close(index, "abort", "client closed the connection");
    context_.metrics.request(499);
    out_.abort(false);
    return false;
  }

  void close(size_t index, const std::string& reason, const std::string& error) {
    Lane& lane = lanes_[index];
    lane.closed = true;
    GenerationRecord& record = lane.record;
    record.finished_reason = reason;
    record.prompt_tokens = lane.prompt;
    record.max_tokens = lane.max_tokens;
    record.completion_tokens = parts_[index].reply->usage().completion;
    record.timing.finished_ns = monotonic_ns();
    context_.metrics.generation(record);
    if (context_.options.log) log(lane, reason, error);
  }

  void log(const Lane& lane, const std::string& reason, const std::string& error) const {
    const GenerationRecord& record = lane.record;
    const auto ms = [&](int64_t ns) {
      return ns == 0 ? json::Value() : json::Value(static_cast<double>(ns - submitted_ns_) / 1e6);
    };
    json::Value line = json::Object{{"time", now_rfc3339()},
                                    {"id", envelope_.id},
                                    {"stream", envelope_.stream.on},
                                    {"prompt_tokens", record.prompt_tokens},
                                    {"completion_tokens", record.completion_tokens},
                                    {"seed", lane.seed},
                                    {"admitted_ms", ms(record.timing.admitted_ns)},
                                    {"first_token_ms", ms(record.timing.first_token_ns)},
                                    {"total_ms", ms(record.timing.finished_ns)},
                                    {"finish", reason}};
    if (!error.empty()) line.set("error", error);
    context_.options.log(line);
  }

  Context& context_;
  const Envelope& envelope_;
  std::vector<Part> parts_;
  http::ResponseWriter& out_;
  EventStream events_;
  std::vector<Lane> lanes_;  // by part; fewer while they are being submitted
  bool any_token_ = false;
  int64_t submitted_ns_ = 0, quiet_since_ns_ = 0;
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
                                          std::vector<int32_t> prompt, const std::string& param, uint64_t choice) {
  const int64_t limit = context.max_model_len();
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  if (n_prompt == 0) return refuse("the prompt must hold at least one token", param);
  if (n_prompt >= limit) return tl::unexpected(context_error(limit, n_prompt, common.max_tokens.value_or(1), param));
  int64_t max_tokens = common.max_tokens.value_or(limit - n_prompt);
  if (n_prompt + max_tokens > limit) return tl::unexpected(context_error(limit, n_prompt, max_tokens, param));
  if (context.options.max_reply > 0) max_tokens = std::min(max_tokens, context.options.max_reply);
  GenerationRequest out;
  out.sampling = common.sampling;
  out.sampling.seed = seed_of_choice(common.seed ? *common.seed : seed_for(prompt, common.salt), choice);
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

ApiResult<std::unique_ptr<TokenFilter>> format_filter(const Context& context, const ReplyFormat& format,
                                                      const std::string& continued, std::string opening) {
  auto filter = std::make_unique<grammar::GrammarFilter>(context.tokenizer, format.grammar, context.trie,
                                                         static_cast<int32_t>(context.loop.config().eos_token_id),
                                                         std::move(opening));
  if (!filter->prefill(continued))
    return refuse("the continued message does not begin a reply of the format asked for", "messages");
  return filter;
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
