#include "tools/bench/control.h"

#include "dsf/cli/signals.h"
#include "dsf/cli/version.h"
#include "tools/bench/body.h"

namespace dsf::bench {
namespace {

http::ClientOptions client_options(const Target& target) {
  http::ClientOptions out;
  out.user_agent = cli::tool_id("dsf-bench");
  out.proxy = target.proxy;
  out.verify_tls = !target.insecure;
  return out;
}

}  // namespace

Control::Control(const Target& target) : target_(target), root_(target.base_url), client_(client_options(target)) {
  if (root_.ends_with("/v1")) root_.resize(root_.size() - 3);
}

Result<http::Response> Control::perform(http::Request request) {
  if (!target_.api_key.empty()) request.headers.emplace_back("Authorization", "Bearer " + target_.api_key);
  request.connect_timeout_us = target_.timeouts.connect_us;
  request.stall_timeout_us = 60'000'000;
  request.stop = [] { return cli::stop_requested(); };
  return client_.perform(request);
}

Result<http::Response> Control::get(const std::string& url) {
  http::Request request;
  request.url = url;
  return perform(std::move(request));
}

Result<http::Response> Control::post(const std::string& url, const json::Value& body) {
  http::Request request;
  request.method = "POST";
  request.url = url;
  request.headers = {{"Content-Type", "application/json"}};
  request.body = json::dump(body);
  return perform(std::move(request));
}

std::optional<int64_t> Control::tokenize(json::Value body) {
  const auto response = post(root_ + "/tokenize", body);
  if (!response || response->status != 200) return std::nullopt;
  const auto answer = json::parse(response->body, "/tokenize");
  if (!answer) return std::nullopt;
  const json::Value* count = answer->find("count");
  return count == nullptr ? std::nullopt : count->to_i64();
}

std::optional<int64_t> Control::tokenize_chat(const Prompt& prompt, const std::string& thinking) {
  json::Value body = json::Object{{"model", target_.model}, {"messages", messages_of(prompt)}, {"add_generation_prompt", true}};
  body.set("chat_template_kwargs", thinking_kwargs(thinking));
  return tokenize(std::move(body));
}

std::optional<int64_t> Control::tokenize_text(const std::string& text) {
  return tokenize(json::Object{{"model", target_.model}, {"prompt", text}, {"add_special_tokens", false}});
}

}  // namespace dsf::bench
