// Bytes: resolve on the Hub, signed URLs on the storage host, ranges, and what a test wants to go wrong on the way.
#include <algorithm>
#include <chrono>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/io/file.h"
#include "state.h"

namespace dsf::loopback_hub {
namespace {

struct Range {
  uint64_t begin = 0, end = 0;  // half open
  bool partial = false;
};

// nullopt: not satisfiable. Only single ranges "bytes=a-b" and "bytes=a-".
std::optional<Range> parse_range(std::string_view header, uint64_t size) {
  if (header.empty()) return Range{0, size, false};
  if (!header.starts_with("bytes=")) return Range{0, size, false};
  header.remove_prefix(6);
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto a = parse_u64(header.substr(0, dash));
  const auto b =
      header.substr(dash + 1).empty() ? std::optional<uint64_t>(size - 1) : parse_u64(header.substr(dash + 1));
  if (!a || !b || *a >= size || *b < *a) return std::nullopt;
  return Range{*a, std::min(*b + 1, size), true};
}

void sleep_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Writes file bytes [begin, end) in blocks; each fault of the transfer acts here. False: the connection is gone.
bool stream(Call& call, const io::Fd& fd, uint64_t begin, uint64_t end) {
  const Fault* fault = call.fault ? &*call.fault : nullptr;
  const uint64_t limit =
      fault != nullptr && (call.faulty("drop_after") || call.faulty("close_after") || call.faulty("stall"))
          ? std::min<uint64_t>(static_cast<uint64_t>(fault->n), end - begin)
          : end - begin;
  const uint64_t block =
      call.faulty("slow") ? std::clamp<uint64_t>(static_cast<uint64_t>(fault->n) / 20, 1, 64 * kKiB) : 256 * kKiB;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(block, std::max<uint64_t>(limit, 1))));
  for (uint64_t at = begin; at < begin + limit;) {
    const auto n = static_cast<size_t>(std::min<uint64_t>(buffer.size(), begin + limit - at));
    const std::span<std::byte> bytes(buffer.data(), n);
    if (!io::read_at(fd, at, bytes)) return false;
    if (call.faulty("flip") && static_cast<uint64_t>(fault->n) >= at && static_cast<uint64_t>(fault->n) < at + n) {
      bytes[static_cast<uint64_t>(fault->n) - at] ^= std::byte{1};
    }
    if (!call.out.write(as_text(bytes))) return false;
    call.log.bytes += n;
    at += n;
    if (call.faulty("slow")) sleep_ms(50);
  }
  if (call.faulty("stall")) {
    while (!call.out.client_gone()) sleep_ms(20);
  }
  return limit == end - begin;
}

uint64_t range_bytes(const Call& call, uint64_t size) {
  const auto range = parse_range(call.request.header("range"), size);
  return range ? range->end - range->begin : 0;
}

void send_html(Call& call) {
  call.send(200, {{"Content-Type", "text/html"}}, "<html><body>Please log in to the network</body></html>");
}

std::string content_range(const Call& call, const Range& range, uint64_t size) {
  const uint64_t shift = call.faulty("wrong_content_range") ? 1 : 0;
  return "bytes " + std::to_string(range.begin + shift) + "-" + std::to_string(range.end - 1 + shift) + "/" +
         std::to_string(size + (call.faulty("wrong_total") ? 1 : 0));
}

http::Headers metadata_headers(const Call& call, const Repository& repo, const RepoFile& file) {
  http::Headers headers = hub_headers(call.state);
  if (!call.faulty("missing_header"))
    headers.emplace_back("X-Repo-Commit", call.faulty("commit_change") ? std::string(40, '0') : repo.commit);
  headers.emplace_back("ETag", "\"" + file.etag() + "\"");
  if (file.lfs) {
    headers.emplace_back("X-Linked-Size", std::to_string(file.size + (call.faulty("linked_change") ? 1 : 0)));
    headers.emplace_back("X-Linked-ETag",
                         "\"" + (call.faulty("linked_change") ? std::string(64, '0') : file.sha256) + "\"");
  }
  return headers;
}

void redirect(Call& call, http::Headers headers, const std::string& location, std::string_view body) {
  headers.emplace_back("Location", location);
  headers.emplace_back("Content-Type", "text/plain; charset=utf-8");
  call.send(302, std::move(headers), body);
}

void redirect_to_storage(Call& call, const Repository& repo, const RepoFile& file) {
  if (call.faulty("redirect_external"))
    return redirect(call, metadata_headers(call, repo, file), call.fault->text, "elsewhere");
  const std::string path = "/" + repo.id + "/" + repo.commit + "/" + http::percent_encode(file.path, "/");
  const int64_t expires = unix_time_ms() / 1000 + call.state.url_lifetime_s;
  const std::string location = call.state.cdn_origin + path + "?Expires=" + std::to_string(expires) +
                               "&Signature=" + call.state.sign(path, expires);
  // The body has a length of its own, so that a client which takes the wrong size shows.
  redirect(call, metadata_headers(call, repo, file), location, "Found. Redirecting to storage");
}

}  // namespace

void send_file(Call& call, const Repository& repo, const RepoFile& file, http::Headers headers) {
  if (call.faulty("html")) return send_html(call);
  if (call.faulty("pointer")) return call.send(200, {{"Content-Type", "text/plain; charset=utf-8"}}, lfs_pointer(file));
  if (call.faulty("range_limit") && range_bytes(call, file.size) > static_cast<uint64_t>(call.fault->n))
    return call.send(403, {}, "range too large");
  // A tag that is not the present one makes the range void (RFC 9110 13.1.5).
  const std::string_view if_range = call.request.header("if-range");
  const std::string_view wanted =
      if_range.empty() || if_range == http::find_header(headers, "ETag") ? call.request.header("range") : "";
  if (wanted.find(',') != std::string_view::npos) return call.send_error(403, "", "invalid range");
  std::optional<Range> range = parse_range(call.faulty("ignore_range") ? std::string_view() : wanted, file.size);
  if (!range) {
    headers.emplace_back("Content-Range", "bytes */" + std::to_string(file.size));
    return call.send(416, std::move(headers), "");
  }
  headers.emplace_back("Accept-Ranges", "bytes");
  headers.emplace_back("Content-Type", "application/octet-stream");
  if (range->partial) headers.emplace_back("Content-Range", content_range(call, *range, file.size));
  int64_t length = static_cast<int64_t>(range->end - range->begin);
  if (call.faulty("short"))
    range->end -= std::min<uint64_t>(range->end - range->begin, static_cast<uint64_t>(call.fault->n));
  if (call.faulty("short")) length = static_cast<int64_t>(range->end - range->begin);
  if (call.faulty("long")) length += call.fault->n;
  call.log.status = range->partial ? 206 : 200;
  if (call.request.method == "HEAD") {
    call.out.begin(call.log.status, headers, length);
    return call.out.end();
  }
  const auto fd = io::open_read(repo.dir / file.path);
  if (!fd) return call.send_error(500, "", fd.error().line());
  call.out.begin(call.log.status, headers, length);
  if (!stream(call, *fd, range->begin, range->end)) return call.out.abort(call.faulty("drop_after"));
  if (call.faulty("long")) call.out.write(std::string(static_cast<size_t>(call.fault->n), 'x'));
  call.out.end();
}

void handle_resolve(Call& call) {
  const std::vector<std::string> parts = split_target(call.request.target);
  const bool cached = parts.size() > 2 && parts[0] == "api";  // api/resolve-cache/models/org/name/commit/path
  const auto verb = std::find(parts.begin(), parts.end(), "resolve");
  const size_t first = cached ? 3 : 0;
  const size_t revision_at = cached ? 5 : static_cast<size_t>(verb - parts.begin()) + 1;
  if (revision_at + 1 >= parts.size()) return call.send_error(404, "", "Not found");
  std::string id, path;
  for (size_t i = first; i < revision_at - (cached ? 0 : 1); ++i) id += (id.empty() ? "" : "/") + parts[i];
  for (size_t i = revision_at + 1; i < parts.size(); ++i) path += (path.empty() ? "" : "/") + parts[i];
  const auto repo = call.state.repository(id);
  if (!allowed(call, id, repo)) return;
  if (!repo->knows(parts[revision_at]))
    return call.send_error(404, "RevisionNotFound", "Invalid rev id: " + parts[revision_at]);
  const RepoFile* file = repo->find(path);
  if (file == nullptr)
    return call.send_error(404, "EntryNotFound", "Entry not found", {{"X-Repo-Commit", repo->commit}});
  if (call.faulty("redirect_loop"))
    return redirect(call, metadata_headers(call, *repo, *file), call.request.target, "");
  if (call.faulty("html")) return send_html(call);
  if (file->lfs) return redirect_to_storage(call, *repo, *file);
  if (call.state.options.resolve_cache && !cached) {
    http::Headers headers = metadata_headers(call, *repo, *file);
    headers.emplace_back(
        "Location", "/api/resolve-cache/models/" + id + "/" + repo->commit + "/" + http::percent_encode(path, "/"));
    return call.send(307, std::move(headers), "");
  }
  send_file(call, *repo, *file, metadata_headers(call, *repo, *file));
}

void handle_cdn(Call& call) {
  const http::ServerRequest& request = call.request;
  if (!call.log.authorization.empty()) return call.send(400, {}, "Only one auth mechanism allowed");
  const std::string path = request.target.substr(0, request.target.find('?'));
  const int64_t expires = parse_i64(query_value(request.query, "Expires")).value_or(0);
  const bool good =
      query_value(request.query, "Signature") == call.state.sign(path, expires) && unix_time_ms() / 1000 < expires;
  if (!good || call.faulty("reject_sig")) return call.send(403, {}, "<Error><Code>AccessDenied</Code></Error>");
  const std::vector<std::string> parts = split_target(path);  // org, name, commit, path...
  if (parts.size() < 4) return call.send(404, {}, "NoSuchKey");
  std::string file_path = parts[3];
  for (size_t i = 4; i < parts.size(); ++i) file_path += "/" + parts[i];
  const auto repo = call.state.repository(parts[0] + "/" + parts[1]);
  const RepoFile* file = repo ? repo->find(file_path) : nullptr;
  if (file == nullptr || repo->commit != parts[2]) return call.send(404, {}, "NoSuchKey");
  if (request.header("range").empty() && file->size > 50'000'000'000)
    return call.send(400, {}, "file too large for a whole download");
  // A strong tag of the storage's own, which is not the digest.
  send_file(call, *repo, *file,
            {{"ETag", "\"" + std::string(call.faulty("etag_change") ? "changed-" : "storage-") +
                          file->sha256.substr(0, 16) + "\""}});
}

}  // namespace dsf::loopback_hub
