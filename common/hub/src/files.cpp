// Bytes of a file: resolve on the Hub, then ranged reads wherever that leads.
#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/hub/hub.h"

namespace dsf::hub {
namespace {

constexpr int kMaxHops = 10;
constexpr int64_t kUnknownLifetimeMs = 15 * 60 * 1000;

bool is_redirect(int s) { return s == 301 || s == 302 || s == 303 || s == 307 || s == 308; }

std::string etag_of(std::string_view header) {
  if (header.starts_with("W/")) header.remove_prefix(2);
  if (header.size() >= 2 && header.front() == '"' && header.back() == '"') header = header.substr(1, header.size() - 2);
  return std::string(header);
}

Hub::Outcome outcome(Code code, const FileSource& f, std::string what, std::string fix, std::string cls, bool retry) {
  Hub::Outcome o;
  o.retry = retry;
  o.error = {code, f.repo() + "/" + f.entry().path, std::move(what), std::move(fix), std::move(cls)};
  return o;
}

Hub::Outcome changed(const FileSource& f, const std::string& what) {
  return outcome(Code::kContent, f, what + " on the Hub differs from the plan",
                 "list the repository again and report it to its owner", "changed", false);
}

// The Hub's own statement about the file must be what was planned.
std::optional<Hub::Outcome> check_metadata(const FileSource& f, const http::Response& r, const http::Url& url) {
  const auto header = [&](const char* name) { return http::find_header(r.headers, name); };
  if (header("X-Repo-Commit").empty()) {
    return outcome(Code::kRemote, f,
                   "no X-Repo-Commit header from " + http::redacted(http::to_string(url)) + ": not a Hub endpoint",
                   "check HF_ENDPOINT, proxy and captive portal", "not_hub", false);
  }
  if (header("X-Repo-Commit") != f.commit()) return changed(f, "the commit");
  const std::string linked = etag_of(header("X-Linked-ETag")), etag = etag_of(header("ETag"));
  const std::string& want = f.entry().lfs ? f.entry().sha256 : f.entry().git_sha1;
  const std::string& got = linked.empty() ? etag : linked;
  if (got.size() == want.size() && got != want) return changed(f, "the content digest");
  if (const auto size = header("X-Linked-Size"); !size.empty() && parse_u64(size) != f.entry().size)
    return changed(f, "the size");
  return std::nullopt;
}

}  // namespace

// One ranged read: what is wanted and what has come of it.
struct Hub::Transfer {
  uint64_t begin = 0, end = 0;
  const Sink& sink;
  uint64_t received = 0;
  bool too_long = false, sink_stopped = false;
  std::optional<Outcome> refused;  // by the headers
  std::string error_body;
};

std::string FileSource::host() const {
  const std::lock_guard lock(mutex_);
  return host_;
}

void FileSource::forget_location() {
  const std::lock_guard lock(mutex_);
  location_.clear();
}

int FileSource::resolves() const {
  const std::lock_guard lock(mutex_);
  return resolves_;
}

// Gives the current place, asking the Hub when there is none or the signed URL is about to age. One thread asks, others
// wait.
std::optional<Hub::Outcome> Hub::resolve(FileSource& file, Place& place) {
  const std::lock_guard lock(file.mutex_);
  if (file.location_.empty() || (file.storage_ && unix_time_ms() >= file.refresh_at_ms_)) {
    const auto url = http::parse_url(resolve_url(file.repo_, file.commit_, file.entry_.path));
    if (!url) return classify(url.error());
    if (!file.entry_.lfs) {
      // Git files come from the Hub itself: the GET's own headers carry the metadata, a HEAD would only cost a request.
      file.location_ = http::to_string(*url);
      file.storage_ = false;
    } else if (auto failed = resolve_storage(file, *url)) {
      return failed;
    }
  }
  place = {file.location_, file.storage_};
  return std::nullopt;
}

std::optional<Hub::Outcome> Hub::resolve_storage(FileSource& file, http::Url url) {
  ++file.resolves_;
  for (int hop = 0; hop <= kMaxHops; ++hop) {
    http::Request request = request_for(url, true);
    request.method = "HEAD";
    const auto response = client_.perform(request);
    if (!response) return classify(response.error());
    const bool redirect = is_redirect(response->status);
    if (!redirect && response->status != 200) return classify(*response, file.repo_ + "/" + file.entry_.path, false);
    auto next =
        redirect ? http::resolve_url(url, http::find_header(response->headers, "Location")) : Result<http::Url>(url);
    if (!next || (url.scheme == "https" && next->scheme == "http")) {
      return outcome(Code::kRemote, file, "redirect without a usable target", "check the endpoint", "redirect", false);
    }
    const bool internal = redirect && (http::origin(*next) == http::origin(url) || may_carry_token(*next));
    if (internal) {
      url = *next;
      continue;
    }
    if (auto wrong = check_metadata(file, *response, url)) return wrong;
    file.location_ = http::to_string(*next);
    file.storage_ = redirect;
    const int64_t now_ms = unix_time_ms();
    const int64_t server_ms = http_date_ms(http::find_header(response->headers, "Date")).value_or(now_ms);
    const int64_t life_ms = url_expiry_ms(*next).value_or(server_ms + kUnknownLifetimeMs) - server_ms;
    file.refresh_at_ms_ = now_ms + life_ms - std::min<int64_t>(120'000, life_ms / 2);
    return std::nullopt;
  }
  return outcome(Code::kRemote, file, "more than 10 redirects", "check the endpoint", "redirect", false);
}

namespace {

// if_range: the request carried a tag, and 200 says that the storage has another one now.
std::optional<Hub::Outcome> check_data_headers(const FileSource& f, const http::Response& r, uint64_t begin,
                                               uint64_t end, bool if_range) {
  const auto header = [&](const char* name) { return http::find_header(r.headers, name); };
  const std::string type(header("Content-Type").substr(0, header("Content-Type").find(';')));
  if (type == "text/html" && !f.entry().path.ends_with(".html")) {
    return outcome(Code::kRemote, f, "a web page came instead of the file", "check proxy and captive portal", "not_hub",
                   false);
  }
  if (type == "multipart/byteranges")
    return outcome(Code::kRemote, f, "multipart answer to a single range", "", "range", true);
  if (const auto encoding = header("Content-Encoding"); !encoding.empty() && encoding != "identity") {
    return outcome(Code::kRemote, f, "compressed answer although none was accepted", "check the proxy", "protocol",
                   true);
  }
  if (r.status == 200) {
    if (begin == 0 && end == f.entry().size) return std::nullopt;
    if (if_range) return outcome(Code::kRemote, f, "the storage's copy changed", "try again", "tag_changed", true);
    return outcome(Code::kRemote, f, "the Range header was ignored", "a proxy may remove it", "range", true);
  }
  const std::string want =
      "bytes " + std::to_string(begin) + "-" + std::to_string(end - 1) + "/" + std::to_string(f.entry().size);
  if (header("Content-Range") == want) return std::nullopt;
  return outcome(Code::kRemote, f, "Content-Range is not what was asked for", "try again later", "range", true);
}

}  // namespace

// The tag to send as If-Range: only a strong one, and only to the host that gave it.
std::string Hub::range_tag(const FileSource& file, const http::Url& url) {
  const std::lock_guard lock(file.mutex_);
  return file.etag_host_ == http::origin(url) && file.storage_etag_.starts_with('"') ? file.storage_etag_
                                                                                     : std::string();
}

// After an answer with data. Another tag of the same host: the next range asks the Hub whether the content is still the
// planned one.
void Hub::note_storage(FileSource& file, const http::Url& url, std::string_view etag) {
  const std::lock_guard lock(file.mutex_);
  if (file.etag_host_ == http::origin(url) && file.storage_etag_ != etag) file.location_.clear();
  file.etag_host_ = http::origin(url);
  file.storage_etag_ = std::string(etag);
}

std::optional<Hub::Outcome> Hub::transfer(FileSource& file, Place place, Transfer& t) {
  for (int hop = 0; hop <= kMaxHops; ++hop) {
    const auto url = http::parse_url(place.url);
    if (!url) return classify(url.error());
    http::Request request = request_for(*url, !place.storage);
    request.headers.emplace_back("Range", "bytes=" + std::to_string(t.begin) + "-" + std::to_string(t.end - 1));
    request.stall_timeout_us = shared_->settings.stall_timeout_us;
    const std::string tag = place.storage ? range_tag(file, *url) : std::string();
    if (!tag.empty()) request.headers.emplace_back("If-Range", tag);
    bool data = false;
    request.on_headers = [&](const http::Response& r) {
      data = r.status == 200 || r.status == 206;
      if (!data) return true;
      // What the Hub says of the file comes first: of other content no range fits, however often it is asked for.
      if (!place.storage && hop == 0) t.refused = check_metadata(file, r, *url);
      if (!t.refused) t.refused = check_data_headers(file, r, t.begin, t.end, !tag.empty());
      return !t.refused;
    };
    request.on_body = [&](std::span<const std::byte> bytes, int64_t) {
      if (!data) {
        t.error_body.append(as_text(
            bytes.first(std::min<size_t>(bytes.size(), 64 * kKiB - std::min<size_t>(t.error_body.size(), 64 * kKiB)))));
        return true;
      }
      const uint64_t left = t.end - t.begin - t.received;
      t.too_long = bytes.size() > left;
      if (t.too_long) bytes = bytes.first(static_cast<size_t>(left));
      t.received += bytes.size();
      t.sink_stopped = !bytes.empty() && !t.sink(bytes);
      return !t.too_long && !t.sink_stopped;
    };
    auto response = client_.perform(request);
    if (t.refused) return t.refused;
    if (t.too_long) return outcome(Code::kRemote, file, "more bytes than asked for", "", "protocol", true);
    if (!response) return classify(response.error());
    if (is_redirect(response->status)) {
      const auto next = http::resolve_url(*url, http::find_header(response->headers, "Location"));
      if (!next || (url->scheme == "https" && next->scheme == "http")) {
        return outcome(Code::kRemote, file, "redirect without a usable target", "check the endpoint", "redirect",
                       false);
      }
      if (hop == 0 && !place.storage) {
        if (auto wrong = check_metadata(file, *response, *url)) return wrong;
      }
      place = {http::to_string(*next), place.storage || !may_carry_token(*next)};
      t.error_body.clear();
      continue;
    }
    if (!data) {
      response->body = std::move(t.error_body);
      return classify(*response, file.repo_ + "/" + file.entry_.path, place.storage);
    }
    if (place.storage) note_storage(file, *url, http::find_header(response->headers, "ETag"));
    const std::lock_guard lock(file.mutex_);
    file.host_ = url->host;
    if (t.received == t.end - t.begin) return std::nullopt;
    return outcome(Code::kRemote, file, "fewer bytes than asked for", "try again", "short_body", true);
  }
  return outcome(Code::kRemote, file, "more than 10 redirects", "check the endpoint", "redirect", false);
}

std::optional<Hub::Outcome> Hub::read_range(FileSource& file, uint64_t begin, uint64_t end, const Sink& sink) {
  if (begin >= end) return std::nullopt;
  Place place;
  if (auto failed = resolve(file, place)) return failed;
  Transfer t{begin, end, sink, 0, false, false, {}, {}};
  auto failed = transfer(file, place, t);
  if (t.sink_stopped) return outcome(Code::kLocal, file, "stopped", "", "stopped", false);
  static constexpr const char* kAskAgain[] = {"expired", "storage", "tag_changed", "timeout", "connect", "dns"};
  if (failed && place.storage &&
      std::any_of(std::begin(kAskAgain), std::end(kAskAgain), [&](const char* c) { return failed->error.cls == c; })) {
    const std::lock_guard lock(file.mutex_);
    if (file.location_ == place.url) file.location_.clear();
    if (failed->error.cls == "tag_changed") file.etag_host_.clear();
  }
  return failed;
}

Result<void> Hub::read(FileSource& file, uint64_t begin, uint64_t end, const Sink& sink) {
  const std::string subject = file.repo() + "/" + file.entry().path;
  Attempts attempts(*shared_);
  while (true) {
    const uint64_t before = begin;
    const auto failed = read_range(file, begin, end, [&](std::span<const std::byte> bytes) {
      begin += bytes.size();
      return sink(bytes);
    });
    if (!failed) return {};
    if (begin > before) attempts.progress();
    if (attempts.again(*failed, subject)) continue;
    if (attempts.stopped()) return fail(Code::kLocal, subject, "stopped", "", "stopped");
    return fail(failed->error);
  }
}

Result<std::string> Hub::read_file(const std::string& repo, const std::string& commit, const Entry& entry,
                                   uint64_t max_bytes) {
  if (entry.size > max_bytes)
    return fail(Code::kRemote, repo + "/" + entry.path, "larger than " + format_bytes(max_bytes), "", "too_large");
  FileSource source(repo, commit, entry);
  std::string content;
  DSF_OK(read(source, 0, entry.size, [&](std::span<const std::byte> bytes) {
    content += as_text(bytes);
    return true;
  }));
  return content;
}

}  // namespace dsf::hub
