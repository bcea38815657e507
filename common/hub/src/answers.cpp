// What answers mean: error classes, waits, expiry of signed URLs, next pages.
#include <algorithm>
#include <ctime>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/hub/hub.h"
#include "dsf/json/json.h"
#include "dsf/manifest/path.h"

namespace dsf::hub {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

// The Hub's own words, when there are any that fit on a line.
std::string server_words(const http::Response& r) {
  if (const auto message = http::find_header(r.headers, "X-Error-Message"); !message.empty())
    return std::string(message.substr(0, 300));
  if (const auto value = json::parse(std::string_view(r.body).substr(0, 64 * kKiB), "error body"); value) {
    if (const json::Value* e = value->find("error"); e != nullptr && e->is_string())
      return e->as_string().substr(0, 300);
  }
  return {};
}

std::string request_id(const http::Response& r) {
  for (const char* name : {"X-Request-Id", "X-Amzn-Trace-Id", "X-Amz-Cf-Id"}) {
    if (const auto id = http::find_header(r.headers, name); !id.empty())
      return " (" + std::string(name) + " " + std::string(id.substr(0, 80)) + ")";
  }
  return {};
}

struct Meaning {
  Code code;
  const char* cls;
  const char* what;
  const char* fix;
  bool retry = false, counts = true;
};

Meaning refused(const http::Response& r, std::string_view code, std::string_view words) {
  if (words.find("Invalid credentials") != std::string_view::npos) {
    return {Code::kRefused, "auth", "the token is not valid", "check HF_TOKEN or the token file"};
  }
  if (code == "GatedRepo") {
    return {Code::kRefused, "gated", "the repository is gated", "accept its terms on its web page and set HF_TOKEN"};
  }
  if (words.find("is disabled") != std::string_view::npos) {
    return {Code::kRefused, "disabled", "the repository is disabled", "nothing can be done from here"};
  }
  if (r.status == 401) {
    return {Code::kRefused, "not_found_or_auth", "repository not found, or no access",
            "check the name, or set HF_TOKEN"};
  }
  return {Code::kRefused, "auth", "the token lacks permission", "use a token that may read this repository"};
}

Meaning missing(std::string_view code) {
  if (code == "RevisionNotFound") return {Code::kMissing, "revision", "revision not found", "check --revision"};
  if (code == "EntryNotFound")
    return {Code::kMissing, "entry", "file not found at this revision", "list the files with dsf-fetch ls"};
  return {Code::kRefused, "not_found", "not found, or no access", "check the name, or set HF_TOKEN"};
}

bool transient(int status) {
  return status == 408 || status == 425 || status == 500 || (status >= 502 && status <= 504) ||
         (status >= 520 && status <= 524);
}

Meaning meaning_of(const http::Response& r, bool from_storage, std::string_view code, std::string_view words) {
  const int s = r.status;
  if (s == 429)
    return {Code::kRemote, "rate", "rate limited", "wait some minutes, or set HF_TOKEN for a higher limit",
            true,          false};
  if (transient(s)) return {Code::kRemote, "transient", "the server failed", "try again later", true};
  if (from_storage && (s == 400 || s == 401 || s == 403 || s == 410)) {
    return {Code::kRemote, "expired", "the storage URL was refused", "try again", true};
  }
  if (from_storage && s == 404)
    return {Code::kRemote, "storage", "the object is missing on this storage host", "try again later", true};
  if (s == 416)
    return {Code::kContent, "changed", "the remote file has another size than planned", "list the repository again"};
  if (s == 401 || s == 403) return refused(r, code, words);
  if (s == 404) return missing(code);
  return {Code::kRemote, "protocol", "unexpected answer", "check the endpoint"};
}

// "20261130T071000Z"
std::optional<int64_t> compact_date_ms(const std::string& text) {
  std::tm tm{};
  if (strptime(text.c_str(), "%Y%m%dT%H%M%SZ", &tm) == nullptr) return std::nullopt;
  return int64_t{timegm(&tm)} * 1000;
}

std::string query_value(std::string_view query, std::string_view key) {
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    if (pair.size() > key.size() && pair.starts_with(key) && pair[key.size()] == '=')
      return http::percent_decode(pair.substr(key.size() + 1));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return {};
}

}  // namespace

Hub::Outcome classify(const http::Response& r, const std::string& subject, bool from_storage) {
  const std::string code(http::find_header(r.headers, "X-Error-Code"));
  const std::string words = server_words(r);
  const Meaning m = meaning_of(r, from_storage, code, words);
  Hub::Outcome out;
  out.retry = m.retry;
  out.counts = m.counts;
  if (const auto wait = retry_after_us(r.headers, unix_time_ms())) out.wait_us = *wait;
  out.error = {m.code, subject, std::string(m.what) + ": HTTP " + std::to_string(r.status), m.fix, m.cls};
  if (!words.empty()) out.error.what += ", " + manifest::printable(words);
  out.error.what += manifest::printable(request_id(r));
  return out;
}

Hub::Outcome classify(const Error& e) {
  Hub::Outcome out;
  out.error = e;
  static constexpr const char* kTransient[] = {"dns", "connect", "timeout", "reset", "short_body", "tls"};
  out.retry = std::any_of(std::begin(kTransient), std::end(kTransient), [&](const char* c) { return e.cls == c; });
  return out;
}

std::optional<int64_t> http_date_ms(std::string_view text) {
  std::tm tm{};
  const std::string s(text);
  if (strptime(s.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &tm) == nullptr) return std::nullopt;
  return int64_t{timegm(&tm)} * 1000;
}

std::optional<int64_t> retry_after_us(const http::Headers& headers, int64_t now_unix_ms) {
  if (const auto text = http::find_header(headers, "Retry-After"); !text.empty()) {
    if (const auto s = parse_u64(text)) return static_cast<int64_t>(std::min<uint64_t>(*s, 86400)) * kSecondUs;
    if (const auto at = http_date_ms(text)) return std::clamp<int64_t>(*at - now_unix_ms, 0, 86'400'000) * 1000;
  }
  const std::string_view limit = http::find_header(headers, "RateLimit");
  const size_t r = limit.find("r=0;"), t = limit.find("t=");
  if (r == std::string_view::npos || t == std::string_view::npos) return std::nullopt;
  const std::string_view digits = limit.substr(t + 2, limit.find_first_not_of("0123456789", t + 2) - (t + 2));
  const auto s = parse_u64(digits);
  return s ? std::optional<int64_t>(static_cast<int64_t>(std::min<uint64_t>(*s, 86400)) * kSecondUs) : std::nullopt;
}

std::optional<int64_t> url_expiry_ms(const http::Url& url) {
  std::optional<int64_t> earliest;
  const auto consider = [&](std::optional<int64_t> ms) {
    if (ms && (!earliest || *ms < *earliest)) earliest = ms;
  };
  if (const auto epoch = parse_u64(query_value(url.query, "Expires")); epoch && *epoch < uint64_t{1} << 40) {
    consider(static_cast<int64_t>(*epoch) * 1000);
  }
  for (const std::string prefix : {"X-Amz-", "X-Goog-"}) {
    const auto date = compact_date_ms(query_value(url.query, prefix + "Date"));
    const auto life = parse_u64(query_value(url.query, prefix + "Expires"));
    if (date && life && *life < uint64_t{1} << 31) consider(*date + static_cast<int64_t>(*life) * 1000);
  }
  return earliest;
}

std::string next_link(std::string_view header) {
  while (!header.empty()) {
    const size_t open = header.find('<');
    const size_t close = header.find('>', open == std::string_view::npos ? 0 : open);
    if (open == std::string_view::npos || close == std::string_view::npos) return {};
    const size_t end = std::min(header.find(',', close), header.size());
    if (header.substr(close, end - close).find("rel=\"next\"") != std::string_view::npos)
      return std::string(header.substr(open + 1, close - open - 1));
    header.remove_prefix(std::min(end + 1, header.size()));
  }
  return {};
}

}  // namespace dsf::hub
