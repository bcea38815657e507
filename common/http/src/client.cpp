// One easy handle driven by one multi handle: the multi interface keeps connections alive between requests and returns
// to our loop often enough for stop polling and for a stall clock that counts both directions.
#include "dsf/http/client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/base/time.h"

namespace dsf::http {
namespace {

constexpr int kMaxHops = 10;
constexpr size_t kMaxHeaderBytes = size_t{1} << 20;

bool same_name(std::string_view a, std::string_view b) { return !find_header({{std::string(a), "x"}}, b).empty(); }

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Everything that one hop collects while curl runs.
struct Hop {
  const Request* request = nullptr;
  Response response;
  size_t header_bytes = 0;
  int64_t last_activity_ns = 0;
  bool follow = false;  // this response is a redirect that perform() will follow: its body is dropped
  bool headers_done = false;
  bool stopped = false;  // a callback said no
  bool too_large = false;
  Pace* pace = nullptr;
};

// The last block of headers is complete.
bool finish_headers(Hop& hop) {
  hop.headers_done = true;
  hop.follow = hop.request->follow_redirects && is_redirect(hop.response.status) &&
               !find_header(hop.response.headers, "Location").empty();
  if (hop.follow || !hop.request->on_headers) return true;
  hop.stopped = !hop.request->on_headers(hop.response);
  hop.last_activity_ns = monotonic_ns();
  return !hop.stopped;
}

void parse_status_line(std::string_view line, Response& response) {
  const size_t space = line.find(' ');
  response.version = std::string(line.substr(5, space == std::string_view::npos ? space : space - 5));
  response.status = 0;
  if (space != std::string_view::npos)
    response.status = static_cast<int>(parse_u64(line.substr(space + 1, 3)).value_or(0));
  response.headers.clear();
}

size_t on_header(char* data, size_t size, size_t n, void* user) {
  Hop& hop = *static_cast<Hop*>(user);
  const size_t bytes = size * n;
  hop.last_activity_ns = monotonic_ns();
  if (hop.response.first_byte_ns == 0) hop.response.first_byte_ns = hop.last_activity_ns;
  hop.header_bytes += bytes;
  if (hop.header_bytes > kMaxHeaderBytes) {
    hop.too_large = true;
    return 0;
  }
  if (hop.headers_done) return bytes;  // trailers of a chunked body
  std::string_view line(data, bytes);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {
    parse_status_line(line, hop.response);
  } else if (line.empty()) {
    if (hop.response.status >= 200 && !finish_headers(hop)) return 0;
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    hop.response.headers.emplace_back(line.substr(0, colon), value);
  }
  return bytes;
}

size_t on_data(char* data, size_t size, size_t n, void* user) {
  Hop& hop = *static_cast<Hop*>(user);
  const size_t bytes = size * n;
  const int64_t now = monotonic_ns();
  hop.last_activity_ns = now;
  if (hop.follow) return bytes;
  if (hop.pace != nullptr && !hop.pace->pay(bytes, hop.request->stop)) {
    hop.stopped = true;
    return 0;
  }
  if (hop.request->on_body) {
    hop.stopped = !hop.request->on_body(as_bytes({data, bytes}), now);
    hop.last_activity_ns = monotonic_ns();  // the time spent by the callback is not the peer's stall
    return hop.stopped ? 0 : bytes;
  }
  if (hop.response.body.size() + bytes > hop.request->max_body_bytes) {
    hop.too_large = true;
    return 0;
  }
  hop.response.body.append(data, bytes);
  return bytes;
}

// The only place where curl tells when the request went out.
int on_debug(CURL*, curl_infotype type, char*, size_t, void* user) {
  if (type == CURLINFO_HEADER_OUT || type == CURLINFO_DATA_OUT) {
    Hop& hop = *static_cast<Hop*>(user);
    hop.response.sent_ns = hop.last_activity_ns = monotonic_ns();
  }
  return 0;
}

// Uploads move without a callback of ours: curl's own counters tell.
struct UploadWatch {
  Hop* hop;
  curl_off_t sent;
};
int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t sent) {
  UploadWatch& watch = *static_cast<UploadWatch*>(user);
  if (sent != watch.sent) {
    watch.sent = sent;
    watch.hop->last_activity_ns = monotonic_ns();
  }
  return 0;
}

std::string_view class_of(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "dns";
    case CURLE_COULDNT_CONNECT:
    case CURLE_INTERFACE_FAILED:
    case CURLE_PROXY:
      return "connect";
    case CURLE_OPERATION_TIMEDOUT:
      return "timeout";
    case CURLE_PARTIAL_FILE:
      return "short_body";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
      return "tls_cert";
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_SHUTDOWN_FAILED:
      return "tls";
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return "reset";
    default:
      return "protocol";
  }
}

Unexpected stop_error(const std::string& url) { return fail(Code::kLocal, redacted(url), "stopped", "", "stopped"); }

Unexpected timeout_error(const std::string& url, std::string what) {
  return fail(Code::kRemote, redacted(url), std::move(what), "check the network and the server, then try again",
              "timeout");
}

Result<curl_slist*> header_list(const Request& request, bool keep_credentials) {
  curl_slist* list = nullptr;
  auto append = [&](const std::string& line) { list = curl_slist_append(list, line.c_str()); };
  bool content_type = false;
  for (const auto& [name, value] : request.headers) {
    if (name.empty() || name.find_first_of(std::string_view("\r\n\0: ", 5)) != std::string::npos ||
        value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      curl_slist_free_all(list);
      return fail(Code::kUsage, name, "header name or value holds a line break or a forbidden character");
    }
    if (!keep_credentials && (same_name(name, "Authorization") || same_name(name, "Cookie"))) continue;
    content_type = content_type || same_name(name, "Content-Type");
    append(value.empty() ? name + ";" : name + ": " + value);
  }
  append("Expect:");  // no 100-continue pause before bodies
  if (!content_type) append("Content-Type:");
  return list;
}

}  // namespace

bool Pace::pay(size_t bytes, const std::function<bool()>& stop) {
  int64_t until_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    const double cost_ns = static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_s_);
    paid_until_ns_ = std::max(paid_until_ns_, monotonic_ns()) + static_cast<int64_t>(cost_ns);
    until_ns = paid_until_ns_;
  }
  for (int64_t left = until_ns - monotonic_ns(); left > 0; left = until_ns - monotonic_ns()) {
    if (stop && stop()) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(left, 50'000'000)));
  }
  return true;
}

struct Client::Impl {
  explicit Impl(ClientOptions o) : options(std::move(o)) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    multi = curl_multi_init();
    easy = curl_easy_init();
    DSF_CHECK(multi != nullptr && easy != nullptr, "libcurl has no memory for a handle");
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 8L);
  }
  ~Impl() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  template <class T>
  void set(CURLoption option, T value) {
    curl_easy_setopt(easy, option, value);
  }

  void set_transport(const Request& request, const Url& url) {
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_BUFFERSIZE, 512L * 1024);
    // One connection carries one transfer: with HTTP/2 all ranges of a file would share one congestion window.
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::max<int64_t>(1, request.connect_timeout_us / 1000)));
    if (!options.user_agent.empty()) set(CURLOPT_USERAGENT, options.user_agent.c_str());
    if (is_loopback_host(url.host)) {
      set(CURLOPT_PROXY, "");
    } else if (!options.proxy.empty()) {
      set(CURLOPT_PROXY, options.proxy.c_str());
    }
    if (!options.ca_bundle.empty()) set(CURLOPT_CAINFO, options.ca_bundle.c_str());
    if (!options.ca_dir.empty()) set(CURLOPT_CAPATH, options.ca_dir.c_str());
    if (!options.verify_tls) {
      set(CURLOPT_SSL_VERIFYPEER, 0L);
      set(CURLOPT_SSL_VERIFYHOST, 0L);
    }
  }

  void set_method(const std::string& method, const std::string& body) {
    if (method == "HEAD") {
      set(CURLOPT_NOBODY, 1L);
    } else if (method == "GET" && body.empty()) {
      set(CURLOPT_HTTPGET, 1L);
    } else {
      if (!body.empty() || method == "POST" || method == "PUT") {
        set(CURLOPT_POST, 1L);
        set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
        set(CURLOPT_POSTFIELDS, body.data());  // borrowed until the hop ends
      }
      set(CURLOPT_CUSTOMREQUEST, method.c_str());
    }
  }

  Result<void> run_hop(const Request& request, const std::string& method, const std::string& body, const Url& url,
                       bool keep_credentials, int64_t deadline_ns, Hop& hop);
  Result<CURLcode> drive(const Request& request, const std::string& url, int64_t deadline_ns, Hop& hop);

  ClientOptions options;
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
};

// Pumps the transfer until curl says done, or one of our clocks or the stop function ends it.
Result<CURLcode> Client::Impl::drive(const Request& request, const std::string& url, int64_t deadline_ns, Hop& hop) {
  while (true) {
    int running = 0;
    if (const CURLMcode rc = curl_multi_perform(multi, &running); rc != CURLM_OK) {
      return fail(Code::kLocal, redacted(url), curl_multi_strerror(rc));
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg == CURLMSG_DONE) return message->data.result;
    }
    if (request.stop && request.stop()) return stop_error(url);
    const int64_t now = monotonic_ns();
    if (deadline_ns > 0 && now >= deadline_ns) return timeout_error(url, "no complete answer within the time limit");
    const int64_t idle_ns = now - hop.last_activity_ns;
    if (request.stall_timeout_us > 0 &&
        idle_ns >=
            request.stall_timeout_us * 1000 + (hop.response.sent_ns == 0 ? request.connect_timeout_us * 1000 : 0)) {
      return timeout_error(url, "no byte for " + std::to_string(idle_ns / 1'000'000) + " ms");
    }
    int64_t wait_ms = 100;
    if (deadline_ns > 0) wait_ms = std::min(wait_ms, (deadline_ns - now) / 1'000'000 + 1);
    if (request.stall_timeout_us > 0)
      wait_ms = std::clamp<int64_t>((request.stall_timeout_us * 1000 - idle_ns) / 1'000'000 + 1, 1, wait_ms);
    curl_multi_poll(multi, nullptr, 0, static_cast<int>(wait_ms), nullptr);
  }
}

Result<void> Client::Impl::run_hop(const Request& request, const std::string& method, const std::string& body,
                                   const Url& url, bool keep_credentials, int64_t deadline_ns, Hop& hop) {
  const std::string text = to_string(url);
  DSF_TRY(curl_slist* const headers, header_list(request, keep_credentials));
  UploadWatch upload{&hop, 0};
  std::array<char, CURL_ERROR_SIZE> words{};
  curl_easy_reset(easy);  // nothing of an earlier request, its credentials above all, may stay on the handle
  set_transport(request, url);
  set_method(method, body);
  set(CURLOPT_URL, text.c_str());
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_ERRORBUFFER, words.data());
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, &hop);
  set(CURLOPT_WRITEFUNCTION, on_data);
  set(CURLOPT_WRITEDATA, &hop);
  set(CURLOPT_DEBUGFUNCTION, on_debug);
  set(CURLOPT_DEBUGDATA, &hop);
  set(CURLOPT_VERBOSE, 1L);
  set(CURLOPT_XFERINFOFUNCTION, on_progress);
  set(CURLOPT_XFERINFODATA, &upload);
  set(CURLOPT_NOPROGRESS, 0L);
  hop.request = &request;
  hop.pace = options.pace.get();
  hop.last_activity_ns = monotonic_ns();
  curl_multi_add_handle(multi, easy);
  const Result<CURLcode> done = drive(request, text, deadline_ns, hop);
  curl_multi_remove_handle(multi, easy);
  curl_slist_free_all(headers);
  if (hop.stopped) return stop_error(text);
  if (!done) return fail(done.error());
  if (hop.too_large) return fail(Code::kRemote, redacted(text), "answer larger than accepted", "", "too_large");
  if (*done != CURLE_OK) {
    const std::string why = words[0] != '\0' ? words.data() : curl_easy_strerror(*done);
    return fail(Code::kRemote, redacted(text), why, "check the network and the server, then try again",
                std::string(class_of(*done)));
  }
  return {};
}

Client::Client(ClientOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<Response> Client::perform(const Request& request) {
  DSF_TRY(Url url, parse_url(request.url));
  const std::string home = origin(url);
  const int64_t deadline_ns = request.total_timeout_us > 0 ? monotonic_ns() + request.total_timeout_us * 1000 : 0;
  std::string method = request.method, body = request.body;
  bool keep_credentials = true;
  for (int i = 0; i <= kMaxHops; ++i) {
    Hop hop;
    DSF_OK(impl_->run_hop(request, method, body, url, keep_credentials, deadline_ns, hop));
    hop.response.effective_url = to_string(url);
    if (!hop.follow) return std::move(hop.response);
    DSF_TRY(const Url next, resolve_url(url, find_header(hop.response.headers, "Location")));
    if (url.scheme == "https" && next.scheme == "http") {
      return fail(Code::kRemote, redacted(to_string(url)), "redirect from https to http refused", "", "redirect");
    }
    // Never back on: a chain that left home may have been steered.
    keep_credentials = keep_credentials && origin(next) == home;
    const int status = hop.response.status;
    if (status == 303 ? method != "HEAD" : (status == 301 || status == 302) && method == "POST") {
      method = "GET";
      body.clear();
    }
    url = next;
  }
  return fail(Code::kRemote, redacted(request.url), "more than 10 redirects", "", "redirect");
}

}  // namespace dsf::http
