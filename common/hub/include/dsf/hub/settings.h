#pragma once
// Where the Hub is and how to speak to it: endpoint, token, certificates, offline switch, taken from the environment
// variables that the public client uses. Source: hub.md 1.7.
//
// Values, any thread. The token is a secret: it is in no error, no log and no JSON of this library.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/http/client.h"

namespace dsf::hub {

struct Settings {
  std::string endpoint = "https://huggingface.co";  // no trailing slash
  std::string token;                                // empty: anonymous
  bool offline = false;
  http::ClientOptions http;
  int64_t metadata_timeout_us = 10'000'000;
  int64_t stall_timeout_us = 30'000'000;
  std::vector<std::string> trusted_hosts;  // https hosts that may get the token too
  bool allow_insecure_token = false;       // token over plain http to a public address
};

struct TokenChoice {
  std::filesystem::path file;  // --token-file; empty: not given
  bool none = false;           // --no-token
};

using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

// Errors: kUsage (endpoint is no URL), kMissing/kLocal (token file cannot be read).
Result<Settings> settings_from(const Environment& env, const TokenChoice& token = {});

// "host:port" of the proxy that libcurl will use for this URL, without credentials; empty when there is none.
std::string proxy_for(const Environment& env, const std::string& url);

// "org/name[@revision]", "hf://org/name@rev", "<endpoint>/org/name[/tree/rev]".
struct RepoSpec {
  std::string repo, revision;  // revision empty: not named
};
Result<RepoSpec> parse_repo(std::string_view text, std::string_view endpoint);

bool is_commit(std::string_view revision);  // 40 lower-case hex digits

}  // namespace dsf::hub
