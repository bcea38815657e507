// serve.answers: after the start, a server that lists its model and completes one token. Source: engram.md 8.7 "after
// start".
#include "dsf/http/client.h"
#include "dsf/json/json.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

constexpr int64_t kTimeoutUs = 120'000'000;

Result<json::Value> call(http::Client& client, const std::string& method, const std::string& url,
                         const std::string& body) {
  http::Request request;
  request.method = method;
  request.url = url;
  request.body = body;
  if (!body.empty()) request.headers = {{"Content-Type", "application/json"}};
  request.total_timeout_us = kTimeoutUs;
  DSF_TRY(const http::Response response, client.perform(request));
  if (response.status != 200)
    return fail(Code::kNo, url, "answered " + std::to_string(response.status),
                "wait until the server is ready, or read its log", "status");
  return json::parse(response.body, url);
}

// The first model's id.
Result<std::string> listed_model(http::Client& client, const std::string& base) {
  const std::string url = base + "/v1/models";
  DSF_TRY(const json::Value models, call(client, "GET", url, ""));
  const json::Value* data = models.find("data");
  if (data == nullptr || !data->is_array() || data->as_array().empty())
    return fail(Code::kNo, url, "lists no model", "read the server's log", "no_model");
  DSF_TRY(const std::string id, json::Cursor(data->as_array().front(), url).string_at("id"));
  return id;
}

Result<void> completes(http::Client& client, const std::string& base, const std::string& model) {
  const std::string url = base + "/v1/completions";
  const json::Value request =
      json::Object{{"model", model}, {"prompt", "1 2 3"}, {"max_tokens", 1}, {"temperature", 0}};
  DSF_TRY(const json::Value answer, call(client, "POST", url, json::dump(request)));
  const json::Value* choices = answer.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->as_array().empty())
    return fail(Code::kNo, url, "answered without a choice", "read the server's log", "canary");
  return {};
}

}  // namespace

void check_serving(Context& c, Outcome& out) {
  if (c.plan.url.empty()) return Context::skip(out, "no --url: for after the start");
  http::Client client;
  if (const auto health = call(client, "GET", c.plan.url + "/health", ""); !health)
    return out.add(finding_of(health.error()));
  const auto model = listed_model(client, c.plan.url);
  if (!model) return out.add(finding_of(model.error()));
  if (const auto done = completes(client, c.plan.url, *model); !done) return out.add(finding_of(done.error()));
  out.summary = *model + " answers";
  c.facts["served_model"] = *model;
}

}  // namespace dsf::preflight
