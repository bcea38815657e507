#include "dsf/hub/settings.h"

#include <algorithm>
#include <cstdlib>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/manifest/path.h"

namespace dsf::hub {
namespace {

std::string upper(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return s;
}

std::string get(const Environment& env, const char* name) { return env(name).value_or(""); }

bool is_true(const Environment& env, const char* name) {
  const std::string v = upper(get(env, name));
  return v == "1" || v == "ON" || v == "YES" || v == "TRUE";
}

std::string trimmed(std::string s) {
  const auto blank = [](char c) { return c == ' ' || c == '\r' || c == '\n' || c == '\t'; };
  while (!s.empty() && blank(s.back())) s.pop_back();
  size_t i = 0;
  while (i < s.size() && blank(s[i])) ++i;
  return s.substr(i);
}

std::filesystem::path hf_home(const Environment& env) {
  if (const std::string home = get(env, "HF_HOME"); !home.empty()) return home;
  if (const std::string cache = get(env, "XDG_CACHE_HOME"); !cache.empty())
    return std::filesystem::path(cache) / "huggingface";
  return std::filesystem::path(get(env, "HOME")) / ".cache" / "huggingface";
}

Result<std::string> find_token(const Environment& env, const TokenChoice& choice) {
  if (choice.none) return std::string();
  if (!choice.file.empty()) {
    DSF_TRY(const std::string text, io::read_text(choice.file, 64 * kKiB));
    const std::string token = trimmed(text);
    if (token.empty()) return fail(Code::kUsage, choice.file.string(), "holds no token");
    return token;
  }
  if (is_true(env, "HF_HUB_DISABLE_IMPLICIT_TOKEN")) return std::string();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = trimmed(get(env, name)); !token.empty()) return token;
  }
  const std::string path = get(env, "HF_TOKEN_PATH");
  const auto text = io::read_text(path.empty() ? hf_home(env) / "token" : std::filesystem::path(path), 64 * kKiB);
  // Nobody named this file on the command line: absent or unreadable means anonymous.
  return text ? trimmed(*text) : std::string();
}

Result<void> seconds(const Environment& env, const char* name, int64_t least_us, int64_t& value_us) {
  const std::string text = get(env, name);
  if (text.empty()) return {};
  const auto s = parse_double(text);
  if (!s || *s <= 0 || *s > 86400) return fail(Code::kUsage, name, "is not a number of seconds");
  value_us = std::max(least_us, static_cast<int64_t>(*s * 1e6));
  return {};
}

std::string first_set(const Environment& env, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string v = get(env, name); !v.empty()) return v;
  }
  return {};
}

bool header_safe(std::string_view token) {
  return std::all_of(token.begin(), token.end(),
                     [](char c) { return static_cast<unsigned char>(c) > 0x20 && c != 0x7f; });
}

}  // namespace

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody calls setenv
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

Result<Settings> settings_from(const Environment& env, const TokenChoice& token) {
  Settings s;
  if (const std::string endpoint = trimmed(get(env, "HF_ENDPOINT")); !endpoint.empty()) {
    s.endpoint = endpoint;
    while (s.endpoint.ends_with('/')) s.endpoint.pop_back();
    if (const auto url = http::parse_url(s.endpoint); !url) {
      return fail(Code::kUsage, "HF_ENDPOINT", url.error().what, "set it to an http or https URL");
    }
  }
  DSF_TRY(s.token, find_token(env, token));
  if (!header_safe(s.token))
    return fail(Code::kUsage, "token", "holds a character that a header cannot carry",
                "check HF_TOKEN or the token file");
  s.offline = is_true(env, "HF_HUB_OFFLINE") || is_true(env, "TRANSFORMERS_OFFLINE");
  DSF_OK(seconds(env, "HF_HUB_ETAG_TIMEOUT", 1'000'000, s.metadata_timeout_us));
  // The Python client's ten seconds are too short for a storage host that rebuilds a file; only a longer wish counts.
  DSF_OK(seconds(env, "HF_HUB_DOWNLOAD_TIMEOUT", 30'000'000, s.stall_timeout_us));
  // libcurl itself reads none of these.
  s.http.ca_bundle = first_set(env, {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"});
  s.http.ca_dir = get(env, "SSL_CERT_DIR");
  return s;
}

std::string proxy_for(const Environment& env, const std::string& text) {
  const auto url = http::parse_url(text);
  if (!url || http::is_loopback_host(url->host)) return {};
  std::string names = first_set(env, {"no_proxy", "NO_PROXY"}) + ",";
  for (size_t i = 0, end = names.find(','); end != std::string::npos; i = end + 1, end = names.find(',', i)) {
    std::string name = trimmed(names.substr(i, end - i));
    if (name.starts_with('.')) name.erase(0, 1);
    if (name == "*" || name == url->host || (!name.empty() && url->host.ends_with("." + name))) return {};
  }
  std::string proxy = url->scheme == "https" ? first_set(env, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
                                             : first_set(env, {"http_proxy", "all_proxy", "ALL_PROXY"});
  if (const size_t scheme = proxy.find("://"); scheme != std::string::npos) proxy.erase(0, scheme + 3);
  proxy = proxy.substr(0, proxy.find('/'));
  return proxy.substr(proxy.rfind('@') + 1);  // npos + 1 is 0: all of it
}

bool is_commit(std::string_view revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<RepoSpec> parse_repo(std::string_view text, std::string_view endpoint) {
  RepoSpec spec;
  std::string_view rest = text;
  bool web = false;
  for (const std::string& prefix :
       {std::string("hf://"), std::string(endpoint) + "/", std::string("https://huggingface.co/")}) {
    if (rest.starts_with(prefix)) {
      rest.remove_prefix(prefix.size());
      web = prefix.ends_with('/') && prefix != "hf://";
      break;
    }
  }
  if (web) {
    if (const size_t tree = rest.find("/tree/"); tree != std::string_view::npos) {
      spec.revision = http::percent_decode(rest.substr(tree + 6));
      rest = rest.substr(0, tree);
    }
  } else if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    spec.revision = std::string(rest.substr(at + 1));
    rest = rest.substr(0, at);
    if (spec.revision.empty()) return fail(Code::kUsage, std::string(text), "empty revision after '@'");
  }
  spec.repo = std::string(rest);
  const bool shape =
      manifest::path_problem(spec.repo).empty() && std::count(spec.repo.begin(), spec.repo.end(), '/') <= 1;
  const bool letters = std::all_of(spec.repo.begin(), spec.repo.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '/';
  });
  if (!shape || !letters) {
    return fail(Code::kUsage, manifest::printable(text), "is neither namespace/name nor an existing .json manifest",
                "write org/name or the path of a pin");
  }
  return spec;
}

}  // namespace dsf::hub
