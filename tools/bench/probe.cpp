#include "tools/bench/probe.h"

#include <algorithm>

#include "dsf/cli/log.h"
#include "tools/bench/body.h"
#include "tools/bench/events.h"
#include "tools/bench/run_data.h"
#include "tools/bench/scrape.h"

namespace dsf::bench {
namespace {

using json::Value;

constexpr int64_t kProbeTokens = 8;
constexpr int kLatencySamples = 5;
constexpr const char* kQuestion = "What is 17*23? Answer with the number only.";
constexpr const char* kAnswer = "391";
constexpr int64_t kAnswerTokens = 64, kThinkingTokens = 512;

class Prober {
 public:
  Prober(const Plan& plan, Control& control, Network& network) : plan_(plan), control_(control), network_(network) {}

  Result<Probe> run() {
    DSF_OK(ask_models());
    ask_extras();
    if (plan_.probe.features) {
      for (const auto& thinking : plan_.settings.thinkings) DSF_OK(find_style(thinking));
      find_weights();
      for (const auto& thinking : plan_.settings.thinkings) compare_prompts(thinking);
      note_features();
    } else {
      for (const auto& thinking : plan_.settings.thinkings) out_.features.thinking_style[thinking] = fixed_style();
    }
    if (plan_.probe.latency != "none") note("latency", latency());
    if (plan_.probe.coherence) note("coherence", coherence());
    return std::move(out_);
  }

 private:
  std::string fixed_style() const { return plan_.target.thinking_style == "auto" ? "both" : plan_.target.thinking_style; }

  Result<void> ask_models() {
    const std::string url = plan_.target.base_url + "/models";
    auto response = control_.get(url);
    if (!response) {
      Error e = response.error();
      if (e.code == Code::kRemote) e.cls = "unreachable";
      return fail(std::move(e));
    }
    out_.server = Value::object();
    out_.server.set("url", plan_.target.base_url);
    out_.server.set("header", clean_utf8(http::find_header(response->headers, "server")));
    if (response->status == 401 || response->status == 403) {
      return fail(Code::kRefused, url, "the server wants credentials (status " + std::to_string(response->status) + ")",
                  "put the key into the variable named by --api-key-env", "unauthorized");
    }
    const auto models = json::parse(response->body, url, {.reject_duplicate_keys = false});
    if (response->status != 200 || !models) {
      cli::log(cli::Level::kWarn, "the server does not list its models", {{"status", std::to_string(response->status)}});
      out_.server.set("models_response", nullptr);
      return {};
    }
    out_.server.set("models_response", *models);
    return pick_model(*models, url);
  }

  Result<void> pick_model(const Value& models, const std::string& url) {
    const Value* data = models.find("data");
    std::string ids;
    if (data != nullptr && data->is_array()) {
      for (const auto& entry : data->as_array()) {
        const Value* id = entry.find("id");
        if (id == nullptr || !id->is_string()) continue;
        if (id->as_string() == plan_.target.model) {
          out_.server.set("identity", entry);
          return {};
        }
        ids += (ids.empty() ? "" : ", ") + id->as_string();
      }
    }
    return fail(Code::kRefused, url, "model '" + plan_.target.model + "' is not served here", "served: " + (ids.empty() ? "none" : ids), "model_unknown");
  }

  void ask_extras() {
    if (const auto version = control_.get(control_.root() + "/version"); version && version->status == 200) {
      const auto parsed = json::parse(version->body, "/version", {.reject_duplicate_keys = false});
      out_.server.set("version", parsed ? *parsed : Value(clean_utf8(version->body.substr(0, 200))));
    }
    if (const auto health = control_.get(control_.root() + "/health")) out_.server.set("health_status", health->status);
    const std::string url = plan_.target.metrics_url == "auto" ? control_.root() + "/metrics" : plan_.target.metrics_url;
    if (url.empty() || url == "none") return;
    const auto metrics = control_.get(url);
    if (!metrics || metrics->status != 200) return;
    const Scrape scrape = parse_metrics(metrics->body);
    if (scrape.samples.empty()) return;
    out_.metrics_url = url;
    Value digests = Value::object();
    for (const auto& [name, value] : scrape.digests) digests.set(name, clean_utf8(value));
    out_.server.set("metrics_digests", std::move(digests));
  }

  void note(const char* key, Value value) {
    if (out_.facts.is_null()) out_.facts = Value::object();
    out_.facts.set(key, std::move(value));
  }

  std::string completions_path(const http::Url& url) const { return url.path + (plan_.settings.endpoint_kind == "chat" ? "/chat/completions" : "/completions"); }

  // One small streamed request with a prompt of the probe's own.
  Request ask(const std::string& thinking, const std::string& style, const Features& features, int64_t text_slot) {
    const PromptKey key{plan_.settings.seed, plan_.settings.input_lines, "warmup", "probe", 0, 0, text_slot};
    std::string reply;
    return ask_text(thinking, style, features, key.text(), prompt_text(key), kProbeTokens, reply);
  }

  Request ask_text(const std::string& thinking, const std::string& style, const Features& features, const std::string& key, const std::string& text, int64_t max_tokens,
                   std::string& reply) {
    const Body body = make_body(plan_.settings, plan_.target, features, thinking, style, {text, {}}, max_tokens);
    const auto url = http::parse_url(plan_.target.base_url);
    network_.prepare(1, "");
    const auto captures = network_.run({{http_request(*url, completions_path(*url), body.json, plan_.target.api_key), std::nullopt}});
    Request r;
    r.id = "probe/" + thinking + "/" + style + "/" + std::to_string(out_.requests.size());
    r.phase = "probe";
    r.thinking = thinking;
    r.warmup = true;
    r.prompt_key = key;
    r.prompt_sha256 = body.prompt_sha256;
    r.prompt_bytes = body.prompt_bytes;
    r.body_sha256 = body.sha256;
    r.body_norm_sha256 = body.norm_sha256;
    r.max_tokens = max_tokens;
    reply = assemble(captures.front(), r).content;
    out_.requests.push_back(r);
    return r;
  }

  // The floor of a round trip: the least of a few, since everything else only adds to it.
  Value latency() {
    json::Array samples;
    std::optional<double> floor_ms;
    for (int i = 0; i < kLatencySamples; ++i) {
      const auto ms = plan_.probe.latency == "api" ? api_latency_ms() : generation_latency_ms(i);
      if (!ms) continue;
      samples.emplace_back(*ms);
      floor_ms = std::min(floor_ms.value_or(*ms), *ms);
    }
    return json::Object{{"kind", plan_.probe.latency}, {"samples_ms", std::move(samples)}, {"floor_ms", floor_ms ? Value(*floor_ms) : Value()}};
  }

  std::optional<double> api_latency_ms() {
    const auto url = http::parse_url(plan_.target.base_url);
    network_.prepare(1, "");
    const auto captures = network_.run({{http_request(*url, url->path + "/models", "", plan_.target.api_key), std::nullopt}});
    const Stamps& t = captures.front().t;
    if (captures.front().http.status != 200 || !t.first_byte || !t.release) return std::nullopt;
    return static_cast<double>(*t.first_byte - *t.release) / 1e6;
  }

  // The shortest prompt there is, one token: what any request costs before its own work begins.
  std::optional<double> generation_latency_ms(int i) {
    const std::string& thinking = plan_.settings.thinkings.front();
    std::string reply;
    const Request r = ask_text(thinking, out_.features.thinking_style[thinking], out_.features, "latency/" + std::to_string(i), std::to_string(i), 1, reply);
    if (!r.ok() || !r.t.first_event) return std::nullopt;
    return static_cast<double>(*r.t.first_event - *r.t.release) / 1e6;
  }

  // A fast server that answers rubbish is broken; one question with one answer finds the worst of it.
  Value coherence() {
    const std::string& thinking = plan_.settings.thinkings.front();
    std::string reply;
    ask_text(thinking, out_.features.thinking_style[thinking], out_.features, "coherence", kQuestion, thinking == "off" ? kAnswerTokens : kThinkingTokens, reply);
    return json::Object{{"question", kQuestion}, {"answer", clean_utf8(std::string_view(reply).substr(0, 200))}, {"ok", reply.find(kAnswer) != std::string::npos}};
  }

  Result<void> find_style(const std::string& thinking) {
    std::vector<std::string> styles = {"both", "kwargs", "top", "none"};
    if (plan_.target.thinking_style != "auto") styles = {plan_.target.thinking_style};
    if (plan_.settings.endpoint_kind == "completions") styles = {"none"};
    Request last;
    for (const bool usage : {true, false}) {
      Features features;
      features.include_usage = usage;
      for (const auto& style : styles) {
        last = ask(thinking, style, features, 0);
        if (last.ok()) {
          out_.features.thinking_style[thinking] = style;
          out_.features.include_usage = usage && out_.features.include_usage;
          if (style == "none" && styles.size() > 1) cli::log(cli::Level::kWarn, "the server accepts no field for the thinking mode", {{"thinking", thinking}});
          return {};
        }
        if (last.status != Status::kHttpError) break;
      }
      if (last.status != Status::kHttpError) break;
    }
    const bool refused = last.http.status == 401 || last.http.status == 403 || last.http.status == 404;
    std::string words = std::string(name_of(last.status)) + ": " + last.error;
    if (!last.http.error_body.empty()) words += " " + last.http.error_body.substr(0, 200);
    return fail(refused ? Code::kRefused : Code::kRemote, plan_.target.base_url, "a small streamed request failed (" + words + ")",
                "look at the server's log", refused ? "model_unknown" : "requests_failed");
  }

  // Extensions that tell how many tokens an event holds.
  void find_weights() {
    const std::string& thinking = plan_.settings.thinkings.front();
    const std::string& style = out_.features.thinking_style[thinking];
    Features with_ids = out_.features;
    with_ids.token_ids = true;
    if (const Request r = ask(thinking, style, with_ids, 1); r.ok() && r.weight_source == "token_ids") {
      out_.features.token_ids = true;
      return;
    }
    if (!out_.features.include_usage) return;
    Features with_usage = out_.features;
    with_usage.continuous_usage = true;
    const Request r = ask(thinking, style, with_usage, 2);
    const auto n_events = std::count_if(r.events.begin(), r.events.end(), [](const EventRow& e) { return is_token(e.kind); });
    out_.features.continuous_usage = r.ok() && r.weight_source == "usage_delta" && n_events >= 2;
  }

  // Does the mode change the rendered prompt? The same text, asked in the opposite mode.
  void compare_prompts(const std::string& thinking) {
    const std::string& style = out_.features.thinking_style[thinking];
    if (style == "none") return;
    const Request here = ask(thinking, style, out_.features, 3);
    const Request there = ask(thinking == "off" ? "75" : "off", style, out_.features, 3);
    if (here.usage.prompt && there.usage.prompt) prompt_differs_.set(thinking, *here.usage.prompt != *there.usage.prompt);
  }

  void note_features() {
    const PromptKey sample{plan_.settings.seed, plan_.settings.input_lines, "warmup", "probe", 0, 0, 0};
    out_.features.tokenize = plan_.settings.endpoint_kind == "chat" &&
                             control_.tokenize_chat({prompt_text(sample), {}}, plan_.settings.thinkings.front()).has_value();
    Value styles = Value::object();
    for (const auto& [thinking, style] : out_.features.thinking_style) styles.set(thinking, style);
    out_.facts = json::Object{{"thinking_style", styles}, {"include_usage", out_.features.include_usage},
                              {"continuous_usage_stats", out_.features.continuous_usage}, {"return_token_ids", out_.features.token_ids},
                              {"tokenize", out_.features.tokenize}, {"metrics", out_.metrics_url}, {"prompt_differs", prompt_differs_}};
  }

  const Plan& plan_;
  Control& control_;
  Network& network_;
  Probe out_;
  Value prompt_differs_ = Value::object();
};

}  // namespace

Result<std::string> first_model(Control& control, const std::string& base_url) {
  const std::string url = base_url + "/models";
  DSF_TRY(const http::Response response, control.get(url));
  const auto models = json::parse(response.body, url, {.reject_duplicate_keys = false});
  const Value* data = models ? models->find("data") : nullptr;
  const Value* id = data != nullptr && data->is_array() && !data->as_array().empty() ? data->as_array().front().find("id") : nullptr;
  if (id == nullptr || !id->is_string()) return fail(Code::kRefused, url, "the server lists no model (status " + std::to_string(response.status) + ")", "name one with --model", "model_unknown");
  return id->as_string();
}

Result<Probe> probe_server(const Plan& plan, Control& control, Network& network) { return Prober(plan, control, network).run(); }

}  // namespace dsf::bench
