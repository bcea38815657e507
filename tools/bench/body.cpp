#include "tools/bench/body.h"

#include "dsf/base/numeric.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"

namespace dsf::bench {
namespace {

using json::Value;

// Engines disagree about names (one renders "low" as 25, another as 50), so a number travels.
Value effort_of(const std::string& thinking) {
  if (thinking == "low") return 50;
  if (thinking == "medium" || thinking == "high") return 75;
  if (thinking == "max") return 100;
  if (const auto n = parse_i64(thinking)) return *n;
  return nullptr;
}

void set_thinking(Value& body, const std::string& thinking, const std::string& style) {
  if (style == "none") return;
  if (style == "kwargs" || style == "both") body.set("chat_template_kwargs", thinking_kwargs(thinking));
  if (style == "top" || style == "both") {
    const Value effort = thinking == "off" ? Value("none") : effort_of(thinking);
    if (!effort.is_null()) body.set("reasoning_effort", effort);
  }
}

// What the serialized body asks, as sha256_of() takes it.
Prompt prompt_in(const std::string& json_text) {
  const auto body = json::parse(json_text, "request body");
  if (!body) return {};
  if (const Value* prompt = body->find("prompt")) return {prompt->is_string() ? prompt->as_string() : std::string(), {}};
  const Value* messages = body->find("messages");
  if (messages == nullptr || !messages->is_array() || messages->as_array().empty()) return {};
  if (messages->as_array().size() > 1) return {{}, *messages};
  const Value* content = messages->as_array().front().find("content");
  return {content != nullptr && content->is_string() ? content->as_string() : std::string(), {}};
}

}  // namespace

Value thinking_kwargs(const std::string& thinking) {
  Value kwargs = Value::object();
  kwargs.set("enable_thinking", thinking != "off");
  kwargs.set("thinking", thinking != "off");
  if (const Value effort = effort_of(thinking); !effort.is_null()) kwargs.set("reasoning_effort", effort);
  return kwargs;
}

Value messages_of(const Prompt& prompt) {
  if (!prompt.messages.is_null()) return prompt.messages;
  return json::Array{json::Object{{"role", "user"}, {"content", prompt.text}}};
}

Body make_body(const Settings& settings, const Target& target, const Features& features, const std::string& thinking,
               const std::string& style, const Prompt& prompt, int64_t max_tokens) {
  Value body = Value::object();
  body.set("model", target.model);
  if (settings.endpoint_kind == "completions") {
    body.set("prompt", prompt.text);
  } else {
    body.set("messages", messages_of(prompt));
  }
  body.set("stream", true);
  if (features.include_usage) {
    Value options = Value::object();
    options.set("include_usage", true);
    if (features.continuous_usage) options.set("continuous_usage_stats", true);
    body.set("stream_options", options);
  }
  body.set(target.max_tokens_field, max_tokens);
  body.set("temperature", settings.temperature);
  if (settings.top_p) body.set("top_p", *settings.top_p);
  if (settings.sample_seed) body.set("seed", *settings.sample_seed);
  if (settings.ignore_eos) {
    body.set("ignore_eos", true);
    body.set("min_tokens", max_tokens);
  }
  if (features.token_ids) body.set("return_token_ids", true);
  if (settings.endpoint_kind == "chat") set_thinking(body, thinking, style);
  if (!target.cache_salt.empty()) body.set("cache_salt", target.cache_salt);
  for (const auto& [key, value] : settings.extra_body.as_object()) body.set(key, value);

  Body out;
  out.json = json::dump(body);
  out.sha256 = codec::sha256(out.json).hex();
  json::Object rest;
  for (const auto& [key, value] : body.as_object()) {
    if (key != "model" && key != "cache_salt") rest.emplace_back(key, value);
  }
  out.norm_sha256 = codec::sha256(json::dump(sorted(Value(std::move(rest))))).hex();
  const Prompt sent = prompt_in(out.json);
  out.prompt_sha256 = sha256_of(sent);
  out.prompt_bytes = static_cast<int64_t>(sent.messages.is_null() ? sent.text.size() : json::dump(sent.messages).size());
  return out;
}

std::string http_request(const http::Url& url, const std::string& path, const std::string& body, const std::string& api_key) {
  const std::string host = url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
  std::string out = (body.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: " + host;
  if (!url.port.empty()) out += ":" + url.port;
  out += "\r\nUser-Agent: " + cli::tool_id("dsf-bench") + "\r\nAccept: */*\r\n";
  if (!api_key.empty()) out += "Authorization: Bearer " + api_key + "\r\n";
  if (!body.empty()) out += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  return out + "\r\n" + body;
}

}  // namespace dsf::bench
