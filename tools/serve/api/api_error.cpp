#include "tools/serve/api/api_error.h"

#include "dsf/tokenizer/tokenizer.h"

namespace dsf::serve {

std::string_view ApiError::type() const {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

json::Value ApiError::body() const {
  // Messages quote requests, and a request may be anything.
  const auto text_or_null = [](const std::string& s) {
    return s.empty() ? json::Value() : json::Value(tokenizer::utf8_lossy(s));
  };
  json::Value error = json::Object{{"message", tokenizer::utf8_lossy(message)},
                                   {"type", type()},
                                   {"param", text_or_null(param)},
                                   {"code", text_or_null(code)}};
  return json::Object{{"error", std::move(error)}};
}

tl::unexpected<ApiError> refuse(std::string message, std::string param, std::string code) {
  return tl::unexpected(ApiError{400, std::move(message), std::move(param), std::move(code)});
}

tl::unexpected<ApiError> refuse_with(int status, std::string message, std::string param, std::string code,
                                     int retry_after_s) {
  return tl::unexpected(ApiError{status, std::move(message), std::move(param), std::move(code), retry_after_s});
}

ApiError from_error(const Error& error) {
  if (error.code != Code::kUsage && error.code != Code::kContent) return {500, error.line(), {}, "internal_error"};
  std::string message = error.subject.empty() ? error.what : error.subject + ": " + error.what;
  if (!error.fix.empty()) message += "; " + error.fix;
  return {400, std::move(message), error.subject, {}};
}

ApiError from_submit(const Error& error) {
  if (error.cls == "queue_full")
    return {429, "The server is busy: " + error.what + ". Try again later.", {}, "queue_full", 1};
  if (error.cls == "draining") return {503, "The server is shutting down.", {}, "draining", 5};
  return {503, "The engine has failed; the server must be restarted.", {}, "engine_failed", 30};
}

}  // namespace dsf::serve
