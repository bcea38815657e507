// Calls that answer with JSON: revision and tree, with retries and redirects that keep the token at home.
#include <algorithm>
#include <random>
#include <set>

#include "dsf/base/time.h"
#include "dsf/hub/hub.h"
#include "dsf/json/json.h"
#include "dsf/manifest/path.h"

namespace dsf::hub {
namespace {

constexpr int kMaxPages = 10'000;
constexpr size_t kMaxPageBytes = size_t{64} << 20;
constexpr int kMaxHops = 10;

std::string request_uuid() {
  thread_local std::mt19937_64 rng(std::random_device{}());
  constexpr char kHex[] = "0123456789abcdef";
  std::string s = "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx";
  for (char& c : s) {
    if (c == 'x') c = kHex[rng() % 16];
  }
  return s;
}

bool private_host(std::string_view host) {
  return http::is_loopback_host(host) || host.starts_with("10.") || host.starts_with("192.168.") ||
         host.ends_with(".local");
}

bool is_redirect(int s) { return s == 301 || s == 302 || s == 303 || s == 307 || s == 308; }

bool hex(std::string_view s, size_t n) {
  return s.size() == n && s.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// nullopt: an entry that is no file.
Result<std::optional<Entry>> parse_entry(const json::Cursor& c) {
  // Compared in place: GCC 12 takes a string moved out of the result for uninitialised.
  const Result<std::string> type = c.string_at("type");
  if (!type) return fail(type.error());
  if (*type != "file") return std::optional<Entry>();
  Entry e;
  DSF_TRY(e.path, c.string_at("path"));
  if (const std::string why = manifest::path_problem(e.path); !why.empty()) {
    return c.fail(why + ": \"" + manifest::printable(e.path).substr(0, 100) + "\"", "do not use this repository");
  }
  DSF_TRY(const std::string oid, c.string_at("oid"));
  DSF_TRY(const int64_t size, c.integer_at("size", 0, (int64_t{1} << 53) - 1));
  e.size = static_cast<uint64_t>(size);
  if (!hex(oid, 40)) return c.fail("oid is not 40 hex digits");
  e.git_sha1 = oid;
  if (const auto lfs = c.maybe("lfs")) {
    e.lfs = true;
    e.pointer_git_sha1 = std::exchange(e.git_sha1, {});  // the top-level oid is that of the pointer file
    DSF_TRY(e.sha256, lfs->string_at("oid"));
    DSF_TRY(const int64_t lfs_size, lfs->integer_at("size", 0, (int64_t{1} << 53) - 1));
    e.size = static_cast<uint64_t>(lfs_size);
    if (!hex(e.sha256, 64)) return lfs->fail("oid is not 64 hex digits");
  }
  DSF_TRY(e.xet_hash, c.string_or("xetHash", ""));
  if (!hex(e.xet_hash, 64)) e.xet_hash.clear();
  return std::optional<Entry>(std::move(e));
}

Result<void> check_together(const std::vector<Entry>& entries, const std::string& subject) {
  std::vector<std::string> paths;
  for (const Entry& e : entries) paths.push_back(e.path);
  for (const manifest::PathConflict& c : manifest::path_conflicts(std::move(paths))) {
    if (c.fatal) {
      return fail(Code::kContent, subject,
                  "the listing names " + manifest::printable(c.a) + " twice, or as a file and a folder",
                  "do not use this repository", "listing");
    }
  }
  return {};
}

}  // namespace

Hub::Hub(std::shared_ptr<Shared> shared) : shared_(std::move(shared)), client_(shared_->settings.http) {}

bool Hub::may_carry_token(const http::Url& url) const {
  const Settings& s = shared_->settings;
  if (s.token.empty()) return false;
  const auto home = http::parse_url(s.endpoint);
  const bool at_home = home && http::origin(*home) == http::origin(url);
  const bool trusted = url.scheme == "https" &&
                       std::find(s.trusted_hosts.begin(), s.trusted_hosts.end(), url.host) != s.trusted_hosts.end();
  const bool readable_by_others = url.scheme == "http" && !private_host(url.host) && !s.allow_insecure_token;
  return (at_home || trusted) && !readable_by_others;
}

bool Hub::sends_token_to(const std::string& text) const {
  const auto url = http::parse_url(text);
  return url && may_carry_token(*url);
}

http::Request Hub::request_for(const http::Url& url, bool with_token) const {
  http::Request r;
  r.url = http::to_string(url);
  r.headers = {{"Accept-Encoding", "identity"}};
  if (with_token && may_carry_token(url)) {
    r.headers.emplace_back("Authorization", "Bearer " + shared_->settings.token);
    r.headers.emplace_back("X-Request-Id", request_uuid());
  } else if (with_token) {
    r.headers.emplace_back("X-Request-Id", request_uuid());
  }
  r.connect_timeout_us = 15'000'000;
  r.stall_timeout_us = shared_->settings.metadata_timeout_us;
  r.stop = [shared = shared_] { return shared->stopped(); };
  return r;
}

// A whole answer with status 200, over as many attempts and redirects as the policy allows.
Result<http::Response> Hub::call(const std::string& text, int64_t max_body) {
  DSF_TRY(http::Url url, http::parse_url(text));
  Attempts attempts(*shared_);
  for (int hops = 0;;) {
    if (!shared_->wait(0)) return fail(Code::kLocal, http::redacted(text), "stopped", "", "stopped");
    http::Request request = request_for(url, true);
    request.max_body_bytes = static_cast<uint64_t>(max_body);
    auto response = client_.perform(request);
    if (response && response->status == 200) return std::move(*response);
    if (response && is_redirect(response->status)) {
      DSF_TRY(const http::Url next, http::resolve_url(url, http::find_header(response->headers, "Location")));
      if (++hops > kMaxHops || (url.scheme == "https" && next.scheme == "http")) {
        return fail(Code::kRemote, http::redacted(text), "too many redirects, or one from https to http",
                    "check the endpoint", "redirect");
      }
      url = next;
      continue;
    }
    const Outcome outcome = response ? classify(*response, http::redacted(text), false) : classify(response.error());
    if (attempts.again(outcome, http::redacted(text), response ? response->status : 0)) continue;
    if (attempts.stopped()) return fail(Code::kLocal, http::redacted(text), "stopped", "", "stopped");
    return fail(outcome.error);
  }
}

Result<Revision> Hub::resolve_revision(const std::string& repo, const std::string& revision) {
  Revision out;
  if (is_commit(revision)) {
    out.commit = revision;
    return out;
  }
  const std::string url =
      shared_->settings.endpoint + "/api/models/" + repo + "/revision/" + http::percent_encode(revision);
  DSF_TRY(const http::Response response, call(url, kMaxPageBytes));
  DSF_TRY(const json::Value value, json::parse(response.body, url, {.reject_duplicate_keys = false}));
  const json::Cursor root(value, url);
  DSF_TRY(out.commit, root.string_at("sha"));
  if (!is_commit(out.commit)) return root.fail("sha is not 40 hex digits", "check that the endpoint is a Hub");
  if (const json::Value* gated = value.find("gated")) out.gated = gated->is_string();
  DSF_TRY(out.is_private, root.boolean_or("private", false));
  return out;
}

Result<std::vector<Entry>> Hub::list(const std::string& repo, const std::string& commit) {
  const std::string& endpoint = shared_->settings.endpoint;
  DSF_TRY(const http::Url home, http::parse_url(endpoint));
  std::string url =
      endpoint + "/api/models/" + repo + "/tree/" + http::percent_encode(commit) + "?recursive=true&expand=false";
  const std::string subject = http::redacted(url);
  std::set<std::string> seen;
  std::vector<Entry> entries;
  while (!url.empty()) {
    if (!seen.insert(url).second || seen.size() > kMaxPages) {
      return fail(Code::kRemote, subject, "the listing's next page leads back to itself", "check the endpoint",
                  "protocol");
    }
    DSF_TRY(const http::Response response, call(url, kMaxPageBytes));
    DSF_TRY(const json::Value value, json::parse(response.body, subject, {.reject_duplicate_keys = false}));
    DSF_TRY(const auto items, json::Cursor(value, subject).elements());
    for (const json::Cursor& item : items) {
      DSF_TRY(auto entry, parse_entry(item));
      if (entry) entries.push_back(std::move(*entry));
    }
    const std::string next = next_link(http::find_header(response.headers, "Link"));
    url.clear();
    if (next.empty()) continue;
    // A mirror may hand out the public Hub's own page links: scheme, host and port are always those of the endpoint.
    DSF_TRY(http::Url absolute, http::resolve_url(home, next));
    absolute.scheme = home.scheme;
    absolute.host = home.host;
    absolute.port = home.port;
    url = http::to_string(absolute);
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.path < b.path; });
  DSF_OK(check_together(entries, subject));
  return entries;
}

std::string Hub::resolve_url(const std::string& repo, const std::string& commit, const std::string& path) const {
  return shared_->settings.endpoint + "/" + repo + "/resolve/" + http::percent_encode(commit) + "/" +
         http::percent_encode(path, "/");
}

}  // namespace dsf::hub
