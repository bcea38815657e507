#pragma once
// The HTTP request of one planned prompt: JSON body, hashes of what is really sent, and the bytes for the socket (bench.md 2.3, 3.1).
#include <string>

#include "dsf/http/client.h"
#include "tools/bench/settings.h"

namespace dsf::bench {

struct Body {
  std::string json;
  std::string sha256;         // of json
  std::string norm_sha256;    // without model and cache_salt, keys sorted: equal across engines when the settings are
  std::string prompt_sha256;  // of the messages found in json, not of the generator's buffer: see sha256_of()
  int64_t prompt_bytes = 0;
};

// style: how the thinking mode travels ("both", "kwargs", "top", "none").
Body make_body(const Settings& settings, const Target& target, const Features& features, const std::string& thinking,
               const std::string& style, const Prompt& prompt, int64_t max_tokens);
// The messages of a chat request.
json::Value messages_of(const Prompt& prompt);

// chat_template_kwargs of a thinking setting; null when the server's default is wanted.
json::Value thinking_kwargs(const std::string& thinking);

// Request bytes with Host, length and authorization. body empty: GET.
std::string http_request(const http::Url& url, const std::string& path, const std::string& body, const std::string& api_key);

}  // namespace dsf::bench
