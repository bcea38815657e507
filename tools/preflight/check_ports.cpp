// ports.*, busy.files, state.failure: is somebody else already at it. Source: engram.md 8.7, cluster.md 4.4, 4.5.
#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "dsf/io/file.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

void check_free(Context& c, Outcome& out, uint16_t port, const char* what) {
  out.summary = "port " + std::to_string(port) + " is free";
  if (!c.machine.listening(port)) return;
  out.summary = "port " + std::to_string(port) + " is taken";
  out.add({Status::kFail, "port_taken",
           std::string("port ") + std::to_string(port) + ": somebody listens there already, the " + what +
               " could not be opened after the load",
           "stop the other server (ss -ltnp names it), or choose another port"});
}

// Is an advisory lock on this file held? Never creates the file.
bool locked(const std::filesystem::path& path) {
  const auto fd = io::open_read(path);
  if (!fd) return false;
  if (::flock(fd->get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  ::flock(fd->get(), LOCK_UN);
  return false;
}

}  // namespace

void check_http_port(Context& c, Outcome& out) {
  if (c.plan.http_port == 0) return Context::skip(out, "this rank serves no HTTP");
  check_free(c, out, c.plan.http_port, "API");
}

void check_rendezvous_port(Context& c, Outcome& out) {
  if (c.plan.world_size == 1 || c.plan.rank != 0)
    return Context::skip(out, "only rank 0 of several listens for its peers");
  check_free(c, out, c.plan.rendezvous_port, "rendezvous");
}

void check_busy_files(Context& c, Outcome& out) {
  out.summary = "no download and no packing in progress";
  std::vector<std::pair<std::filesystem::path, const char*>> locks{{c.plan.model / ".cache/fetch/LOCK", "dsf-fetch"}};
  if (!c.plan.engram.empty()) locks.emplace_back(c.plan.engram / ".dsf-pack-engram.lock", "dsf-pack-engram");
  for (const auto& [path, tool] : locks)
    if (locked(path))
      out.add(
          {Status::kFail, "busy", path.string() + ": " + tool + " is at work in this folder", "wait for it to end"});
}

void check_last_failure(Context& c, Outcome& out) {
  if (c.node() == nullptr || c.node()->state.empty()) return Context::skip(out, "the node file names no state folder");
  const auto marker = c.node()->state / "last-failure.json";
  std::error_code ec;
  if (!std::filesystem::exists(marker, ec)) {
    out.summary = "no record of a failure";
    return;
  }
  out.summary = "a failure is on record";
  out.add(
      {Status::kWarning, "last_failure", marker.string() + ": the last run ended badly", "read it, then remove it"});
}

}  // namespace dsf::preflight
