#pragma once
// The Hub's read protocol: a revision to its commit, the complete file list with content addresses, and ranged reads
// through the resolve route with signed storage URLs. Source: hub.md 1, 3.8-3.10.
//
// One Hub per thread (it owns HTTP connections); a Shared is given to all of them and carries what they must agree on.
// A FileSource is shared by the threads that read one file. Errors carry cls for the finer reason: "not_found_or_auth",
// "auth", "gated", "disabled", "not_found" (kRefused); "revision", "entry" (kMissing); "transient", "rate", "expired",
// "protocol", "not_hub", "range", transport classes of dsf::http (kRemote); "changed" (kContent); "offline" (kOffline);
// "stopped" (kLocal).
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/http/client.h"
#include "dsf/hub/settings.h"

namespace dsf::hub {

// A file of a listing. Exactly one digest names the content: sha256 for LFS files, git_sha1 for the others.
struct Entry {
  std::string path;  // checked: safe to join to a folder
  uint64_t size = 0;
  bool lfs = false;
  std::string sha256;            // LFS only
  std::string git_sha1;          // not LFS only
  std::string pointer_git_sha1;  // LFS only
  std::string xet_hash;
};

struct Revision {
  std::string commit;
  bool gated = false, is_private = false;
};

struct RetryPolicy {
  int attempts = 10;            // without progress
  int64_t base_us = 1'000'000;  // full jitter: random in [0, min(cap, base * 2^n)]
  int64_t cap_us = 60'000'000;
  int64_t rate_cap_us = 900'000'000;  // longest single wait for a rate limit
  int rate_waits = 5;                 // consecutive ones without a success
};

struct RetryEvent {
  std::string url, cls;  // url without its query
  int status = 0;
  int64_t wait_us = 0;
};

// What the threads of one run share: settings, the rate-limit gate, the stop switch, an observer of retries.
// Thread-safe.
class Shared {
 public:
  Shared(Settings s, RetryPolicy r) : settings(std::move(s)), retry(r) {}
  const Settings settings;
  const RetryPolicy retry;
  std::function<bool()> stop;                       // set before the first request
  std::function<void(const RetryEvent&)> on_retry;  // called from any thread

  bool stopped() const { return stop && stop(); }
  bool gate_closed();
  // All threads pause until then (monotonic); later times win.
  void close_gate_until(int64_t monotonic_ns);
  // Sleeps in small steps until the gate is open and wait_us have passed; false when stopped.
  bool wait(int64_t wait_us);
  int64_t backoff_us(int attempt) const;

 private:
  std::mutex mutex_;
  int64_t gate_ns_ = 0;
};

// Where the bytes of one file are, resolved once and again when the signed URL ages. Thread-safe.
class FileSource {
 public:
  FileSource(std::string repo, std::string commit, Entry entry)
      : repo_(std::move(repo)), commit_(std::move(commit)), entry_(std::move(entry)) {}
  const Entry& entry() const { return entry_; }
  const std::string& repo() const { return repo_; }
  const std::string& commit() const { return commit_; }
  std::string host() const;  // that last served bytes; for records
  // Signed URLs asked for so far.
  int resolves() const;
  // The next request asks the Hub again where the bytes are.
  void forget_location();

 private:
  friend class Hub;
  std::string repo_, commit_;
  Entry entry_;
  mutable std::mutex mutex_;
  std::string location_;  // absolute; empty: not resolved
  bool storage_ = false;  // location_ is of another origin than the Hub: no credentials
  int64_t refresh_at_ms_ = 0;
  std::string host_;
  std::string storage_etag_, etag_host_;  // the storage host's own tag, not a digest; for If-Range
  int resolves_ = 0;
};

class Hub {
 public:
  explicit Hub(std::shared_ptr<Shared> shared);

  // A commit is returned as it is; anything else is asked for.
  Result<Revision> resolve_revision(const std::string& repo, const std::string& revision);
  // Complete or an error, sorted by path. Unsafe or repeated paths are kContent.
  Result<std::vector<Entry>> list(const std::string& repo, const std::string& commit);

  // One attempt at bytes [begin, end) of the file. sink gets them in order and may return false to stop (cls
  // "stopped"). Fails, after the sink has possibly taken a prefix, with the classes above; the caller counts what
  // arrived and decides on the next attempt. A range of the whole file may be answered 200.
  struct Outcome {
    bool retry = false;    // worth another attempt
    bool counts = true;    // uses up an attempt (a rate limit does not)
    int64_t wait_us = -1;  // what the server asked for; -1: back off
    Error error;
  };
  using Sink = std::function<bool(std::span<const std::byte>)>;
  std::optional<Outcome> read_range(FileSource& file, uint64_t begin, uint64_t end, const Sink& sink);

  // The same with retries, continuing at the exact byte; sink returning false ends it with cls "stopped".
  Result<void> read(FileSource& file, uint64_t begin, uint64_t end, const Sink& sink);

  // A whole small file in memory, with retries, its digest not checked. kRemote beyond max_bytes.
  Result<std::string> read_file(const std::string& repo, const std::string& commit, const Entry& entry,
                                uint64_t max_bytes);

  // Whether a request to this URL would carry the token: never to another origin, never openly over the internet.
  bool sends_token_to(const std::string& url) const;

  std::string resolve_url(const std::string& repo, const std::string& commit, const std::string& path) const;

 private:
  Result<http::Response> call(const std::string& url, int64_t max_body);
  http::Request request_for(const http::Url& url, bool with_token) const;
  bool may_carry_token(const http::Url& url) const;
  struct Place {
    std::string url;
    bool storage = false;
  };
  struct Transfer;
  std::optional<Outcome> resolve(FileSource& file, Place& place);
  std::optional<Outcome> resolve_storage(FileSource& file, http::Url url);
  std::optional<Outcome> transfer(FileSource& file, Place place, Transfer& t);
  static std::string range_tag(const FileSource& file, const http::Url& url);
  static void note_storage(FileSource& file, const http::Url& url, std::string_view etag);
  std::shared_ptr<Shared> shared_;
  http::Client client_;
};

// The attempts at one thing: counts failures since the last progress and waits between them, all threads together when
// the server limits the rate. One thread each.
class Attempts {
 public:
  explicit Attempts(Shared& shared) : shared_(shared) {}
  void progress() { failures_ = waits_ = 0; }
  // After a failure: waits as the policy and the server say. False when there is to be no further attempt, or the run
  // was stopped meanwhile (see stopped()).
  bool again(const Hub::Outcome& outcome, const std::string& url, int status = 0);
  bool stopped() const { return stopped_; }

 private:
  Shared& shared_;
  int failures_ = 0, waits_ = 0;
  bool stopped_ = false;
};

// What a failed answer means (exposed for tests). from_storage: the answer came from a signed URL.
Hub::Outcome classify(const http::Response& response, const std::string& subject, bool from_storage);
Hub::Outcome classify(const Error& transport_error);
// Retry-After (seconds or date) and RateLimit t=, in microseconds; nullopt when absent.
std::optional<int64_t> retry_after_us(const http::Headers& headers, int64_t now_unix_ms);
std::optional<int64_t> http_date_ms(std::string_view text);
// Expiry of a signed URL, Unix milliseconds; nullopt when the URL does not say.
std::optional<int64_t> url_expiry_ms(const http::Url& url);
// Target of rel="next" in a Link header; empty when there is none.
std::string next_link(std::string_view link_header);

}  // namespace dsf::hub
