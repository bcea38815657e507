#pragma once
// A Hub on the loopback interface: the read surface of the public one, made from folders, with faults on request.
//
//   root/<org>/<name>/...   every folder of two levels is a model repository; its files are the content of branch
//   "main" root/<org>/<name>/.hub.json   optional: {"private":true, "gated":"auto", "disabled":true,
//   "refs":{"v1.0":"tag"}}
//
// Two listeners with different host names: the Hub itself on 127.0.0.1 and the storage ("CDN") on 127.0.0.2, since
// clients treat a redirect to the same host name as internal. Folders are scanned and hashed when a repository is first
// asked for, and again after reload(). start() and the methods may be called from any thread; handlers run on the
// servers' threads. Source: hub.md 10.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"

namespace dsf::loopback_hub {

struct Options {
  std::filesystem::path root;
  uint16_t port = 0, cdn_port = 0;       // 0: any free one
  std::string cdn_host = "127.0.0.2";    // an origin of its own even when equal to the Hub's host (other port)
  std::string token = "hf_good";         // what private and gated repositories want
  size_t page_size = 1000;               // entries of a tree page
  int64_t url_lifetime_s = 3600;         // of signed storage URLs
  bool resolve_cache = false;            // answer git files with a relative redirect first
  uint64_t lfs_from_bytes = 10'000'000;  // larger files are in LFS, beside the usual suffixes
};

// One rule of the fault list; the first that matches and is not used up wins.
struct Fault {
  std::string host;            // "hub", "cdn" or empty for both
  std::string path_contains;   // of the decoded path; empty: any
  std::string method;          // empty: any
  std::string range_contains;  // of the Range header; empty: any
  int64_t nth = 0;             // only from the nth matching request on (0: from the first)
  int64_t times = -1;          // how often; -1: for ever
  // drop_after, close_after, status, rate, short, long, ignore_range, wrong_content_range, wrong_total, etag_change,
  // linked_change, commit_change, flip, slow, stall, reject_sig, html, redirect_loop, redirect_external, page_loop,
  // dup_path, bad_path, missing_header, pointer (the LFS pointer instead of the content), range_limit (longer ranges
  // are refused with 403)
  std::string action;
  int64_t n = 0;     // bytes, status or bytes per second, as the action needs
  std::string text;  // Retry-After, redirect target, bad path
};
Result<Fault> fault_from(const json::Value& value);

// One answered request. The bytes are those of the body that were written.
struct LogEntry {
  std::string host, method, target, range, authorization, user_agent;  // authorization: as sent (this is a test server)
  int status = 0;
  uint64_t bytes = 0;
  std::string if_range = {};
};

class LoopbackHub {
 public:
  static Result<std::unique_ptr<LoopbackHub>> start(Options options);
  virtual ~LoopbackHub() = default;
  virtual std::string endpoint() const = 0;  // "http://127.0.0.1:PORT", for HF_ENDPOINT
  virtual std::string cdn_origin() const = 0;
  virtual Result<std::string> commit_of(const std::string& repo) = 0;  // "org/name" -> 40 hex
  virtual void add_fault(Fault fault) = 0;
  virtual void clear_faults() = 0;
  virtual std::vector<LogEntry> log() const = 0;
  virtual void clear_log() = 0;
  virtual void reload() = 0;  // forget scanned folders
  virtual void set_url_lifetime(int64_t seconds) = 0;
  virtual void stop() = 0;
};

}  // namespace dsf::loopback_hub
