#pragma once
// One measured request as it is stored (bench.md 1.1, 3.1): stamps, every event, every network read, counts, outcome.
//
// Plain values. Times are monotonic nanoseconds relative to the run's epoch; an absent stamp is nullopt, never 0. Everything that the
// summary needs is in here, so that metrics can be computed again from the raw file alone.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/json/json.h"

namespace dsf::bench {

inline constexpr std::string_view kRawSchema = "bench.raw/1";

enum class Status {
  kOk, kHttpError, kStreamError, kTruncated, kTimeoutConnect, kTimeoutFirstToken, kTimeoutIdle, kTimeoutTotal, kConnectError,
  kProtocolError, kEmpty, kAborted
};
std::string_view name_of(Status status);
std::optional<Status> status_named(std::string_view name);

// What an event carried. The first five are token events.
enum class EventKind { kReasoning, kContent, kBoth, kTool, kTokenIds, kRole, kFinish, kUsage, kDone, kComment, kError, kOther };
std::string_view name_of(EventKind kind);
std::optional<EventKind> event_kind_named(std::string_view name);
inline bool is_token(EventKind kind) { return kind <= EventKind::kTokenIds; }

struct Stamps {
  using Time = std::optional<int64_t>;
  Time scheduled;  // rate mode: when the schedule wanted it released
  Time release, sent, headers, first_byte, first_event, first_token, first_content, last_token, finish_event, usage_event, done, end;
};

struct EventRow {
  int64_t t = 0;     // stamp of the read that brought its last byte
  int64_t read = 0;  // index into reads
  EventKind kind = EventKind::kOther;
  int64_t chars = 0;            // Unicode code points of its text
  std::optional<int64_t> tok;   // tokens it carried, when the server says so
  bool operator==(const EventRow&) const = default;
};

struct ReadRow {
  int64_t t = 0, bytes = 0;
  bool operator==(const ReadRow&) const = default;
};

struct Usage {
  std::optional<int64_t> prompt, completion, total, cached, reasoning;
  bool operator==(const Usage&) const = default;
};

struct Output {
  std::string finish_reason;  // empty: none seen
  int64_t chars = 0, reasoning_events = 0, content_events = 0, tool_events = 0;
  std::string text_sha256, reasoning_sha256, content_sha256, token_ids_sha256;  // empty: no such text
  bool starts_with_think = false;  // the content begins with a thinking marker: the server does not separate it
  std::optional<std::string> text;  // with --save-text
};

struct HttpInfo {
  int64_t status = 0;
  std::string version, content_type, remote, server, request_id, error_body;
  int64_t local_port = 0, new_connects = 0, bytes_up = 0, bytes_down = 0;
  bool conn_reused = false, closed_by_server = false;
};

struct Request {
  std::string id;  // "decode/off/r0/c4/s2"
  std::string phase, thinking;
  int64_t repeat = 0, c = 1, slot = 0, attempt = 0;
  bool warmup = false;
  Status status = Status::kOk;
  std::string error;  // words for a failed one
  std::string prompt_key, prompt_sha256;  // sha256 of the message content inside the serialized body
  int64_t prompt_bytes = 0;
  std::string body_sha256, body_norm_sha256;
  int64_t max_tokens = 0;
  Stamps t;
  std::string first_token_source;   // "delta" or "finish"; empty without a first token
  std::vector<EventRow> events;
  std::vector<ReadRow> reads;
  std::string weight_source;        // "token_ids", "usage_delta", "uniform"
  std::string token_count_source;   // "usage", "token_ids", "tokenize", "chunks"; empty: no count
  std::optional<int64_t> n_tokens;  // completion tokens by that source
  Usage usage;
  json::Value usage_raw;            // as the server sent it; null when it sent none
  Output output;
  HttpInfo http;
  json::Value server_ext;           // unknown top-level members of the last events, verbatim
  std::vector<std::string> flags;
  int64_t loop_lag_max_ns = 0;

  bool ok() const { return status == Status::kOk; }
  bool counts_exact() const { return token_count_source == "usage" || token_count_source == "token_ids"; }
  bool has_flag(std::string_view flag) const;
  void add_flag(std::string_view flag);  // once
};

json::Value to_json(const Request& request, std::string_view run_id);
// Reads what to_json wrote; unknown members are ignored. Errors: kContent with the path of the member.
Result<Request> request_from_json(const json::Value& value, std::string_view subject);

}  // namespace dsf::bench
