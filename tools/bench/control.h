#pragma once
// Untimed requests to the server: models, metrics, tokenizer. One thread.
#include <string>

#include "dsf/http/client.h"
#include "dsf/json/json.h"
#include "tools/bench/settings.h"

namespace dsf::bench {

class Control {
 public:
  explicit Control(const Target& target);
  // A status other than 2xx is not an error: look at the response.
  Result<http::Response> get(const std::string& url);
  Result<http::Response> post(const std::string& url, const json::Value& body);
  // POST /tokenize of a chat or a text; nullopt when the server has no such thing or refuses.
  std::optional<int64_t> tokenize_chat(const Prompt& prompt, const std::string& thinking);
  std::optional<int64_t> tokenize_text(const std::string& text);
  const std::string& root() const { return root_; }  // base URL without "/v1"

 private:
  std::optional<int64_t> tokenize(json::Value body);
  Result<http::Response> perform(http::Request request);

  const Target& target_;
  std::string root_;
  http::Client client_;
};

}  // namespace dsf::bench
