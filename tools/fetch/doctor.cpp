#include "tools/fetch/doctor.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/manifest/path.h"
#include "tools/fetch/target.h"

namespace dsf::fetch {
namespace {

constexpr double kSlowHash = 0.6e9;  // bytes per second of one core without SHA instructions

struct Check {
  std::string name, level, text;  // level: "ok", "warn", "fail"
  Code code = Code::kOk;
};

std::string milliseconds(int64_t since_ns) { return std::to_string((monotonic_ns() - since_ns) / 1'000'000) + " ms"; }

class Doctor {
 public:
  Doctor(const DoctorOptions& o, const std::shared_ptr<hub::Shared>& shared) : o_(o), shared_(shared), hub_(shared) {}

  void examine() {
    endpoint();
    proxy();
    certificates();
    token();
    if (!o_.repo.empty()) repository();
    disk();
    hashing();
  }
  const std::vector<Check>& checks() const { return checks_; }

 private:
  void ok(std::string name, std::string text) {
    checks_.push_back({std::move(name), "ok", std::move(text), Code::kOk});
  }
  void warn(std::string name, std::string text) {
    checks_.push_back({std::move(name), "warn", std::move(text), Code::kOk});
  }
  void failed(std::string name, const Error& e) { checks_.push_back({std::move(name), "fail", e.line(), e.code}); }

  Result<http::Response> ask(const std::string& url, bool with_token) {
    http::Client client(shared_->settings.http);
    http::Request r;
    r.url = url;
    r.stall_timeout_us = shared_->settings.metadata_timeout_us;
    r.stop = [this] { return shared_->stopped(); };
    if (with_token) r.headers.emplace_back("Authorization", "Bearer " + shared_->settings.token);
    return client.perform(r);
  }

  void endpoint() {
    const int64_t start = monotonic_ns();
    // Any repository's name does: what counts is that a Hub answers, whatever it says.
    const auto r = ask(shared_->settings.endpoint + "/api/models/dsf/doctor", false);
    if (!r) return failed("endpoint", r.error());
    if (http::find_header(r->headers, "X-Request-Id").empty() && http::find_header(r->headers, "X-Error-Code").empty())
      return warn("endpoint", shared_->settings.endpoint + " answers HTTP " + std::to_string(r->status) +
                                  " without a Hub's headers; a captive portal or proxy may stand between");
    ok("endpoint", shared_->settings.endpoint + " answers in " + milliseconds(start));
  }

  void proxy() {
    const std::string p = hub::proxy_for(hub::process_environment, shared_->settings.endpoint);
    ok("proxy", p.empty() ? "none" : p);
  }

  void certificates() {
    const http::ClientOptions& h = shared_->settings.http;
    std::error_code ignored;
    for (const std::string& path : {h.ca_bundle, h.ca_dir}) {
      if (!path.empty() && !std::filesystem::exists(path, ignored))
        return failed("certificates", {Code::kMissing, path, "is not there", "check --cacert and SSL_CERT_FILE", ""});
    }
    if (!h.verify_tls) return warn("certificates", "not verified (--insecure)");
    ok("certificates", !h.ca_bundle.empty() ? h.ca_bundle : !h.ca_dir.empty() ? h.ca_dir : "those of the system");
  }

  void token() {
    if (shared_->settings.token.empty()) return ok("token", "none: public repositories only");
    if (!hub_.sends_token_to(shared_->settings.endpoint))
      return warn("token", "there is one, but it is not sent over plain http to a public address");
    const auto r = ask(shared_->settings.endpoint + "/api/whoami-v2", true);
    if (!r) return failed("token", r.error());
    if (r->status != 200) return failed("token", hub::classify(*r, "token", false).error);
    const auto who = json::parse(r->body, "whoami", {.reject_duplicate_keys = false});
    const json::Value* name = who ? who->find("name") : nullptr;
    ok("token", "of " + (name != nullptr && name->is_string() ? manifest::printable(name->as_string())
                                                              : std::string("somebody")));
  }

  void repository() {
    const auto spec = hub::parse_repo(o_.repo, shared_->settings.endpoint);
    if (!spec) return failed("repository", spec.error());
    const std::string revision = !spec->revision.empty() ? spec->revision : !o_.revision.empty() ? o_.revision : "main";
    const auto rev = hub_.resolve_revision(spec->repo, revision);
    if (!rev) return failed("repository", rev.error());
    const auto entries = hub_.list(spec->repo, rev->commit);
    if (!entries) return failed("repository", entries.error());
    ok("repository", spec->repo + " at " + rev->commit + ", " + std::to_string(entries->size()) + " files");
    const auto by_size = [](const hub::Entry& a, const hub::Entry& b) { return a.size < b.size; };
    for (const bool small : {true, false}) {
      std::vector<hub::Entry> some;
      std::copy_if(entries->begin(), entries->end(), std::back_inserter(some),
                   [&](const hub::Entry& e) { return e.size > 0 && e.lfs == !small; });
      if (some.empty()) continue;
      file(small ? "small file" : "large file", *spec, rev->commit,
           small ? *std::min_element(some.begin(), some.end(), by_size)
                 : *std::max_element(some.begin(), some.end(), by_size));
    }
  }

  // One byte of a file, by range: names the host that serves it, and whether ranges work at its end.
  void file(const std::string& name, const hub::RepoSpec& spec, const std::string& commit, const hub::Entry& entry) {
    hub::FileSource source(spec.repo, commit, entry);
    const int64_t start = monotonic_ns();
    const auto got =
        hub_.read(source, entry.lfs ? entry.size - 1 : 0, entry.size, [](std::span<const std::byte>) { return true; });
    if (!got) return failed(name, got.error());
    ok(name, manifest::printable(entry.path) + " from " + source.host() + " in " + milliseconds(start));
  }

  void disk() {
    const Target target(o_.local_dir.empty() ? "." : o_.local_dir);
    const auto free = io::free_bytes(target.existing_ancestor());
    if (!free) return failed("disk", free.error());
    if (!target.writable())
      return failed("disk",
                    {Code::kLocal, target.dir().string(), "cannot be written", "check permissions and mount", ""});
    const std::string text = format_bytes(*free) + " free";
    target.on_network() ? warn("disk", text + ", on a network file system: few connections, files read back")
                        : ok("disk", text);
  }

  void hashing() {
    const std::vector<std::byte> block(kMiB);
    codec::Sha256 hash;
    uint64_t bytes = 0;
    const int64_t start = monotonic_ns();
    while (monotonic_ns() - start < 200'000'000) {
      hash.update(block);
      bytes += block.size();
    }
    const double rate = static_cast<double>(bytes) / (static_cast<double>(monotonic_ns() - start) * 1e-9);
    const std::string text = format_bytes(static_cast<uint64_t>(rate)) + "/s of SHA-256 on one core";
    rate < kSlowHash ? warn("hashing", text + ": no SHA instructions in use, or a busy machine") : ok("hashing", text);
  }

  const DoctorOptions& o_;
  const std::shared_ptr<hub::Shared>& shared_;
  hub::Hub hub_;
  std::vector<Check> checks_;
};

}  // namespace

Result<int> run_doctor(const DoctorOptions& o, const std::shared_ptr<hub::Shared>& shared) {
  Doctor doctor(o, shared);
  doctor.examine();
  Code code = Code::kOk;
  json::Value list = json::Value::array();
  for (const Check& c : doctor.checks()) {
    if (c.code != Code::kOk) code = code == Code::kOk ? c.code : worst(code, c.code);
    if (!o.json) std::printf("%-4s  %-12s  %s\n", c.level.c_str(), c.name.c_str(), c.text.c_str());
    json::Value v = json::Value::object();
    v.set("name", c.name);
    v.set("level", c.level);
    v.set("text", c.text);
    list.push(std::move(v));
  }
  if (o.json) {
    json::Value out = json::Value::object();
    out.set("schema", "fetch-doctor");
    out.set("v", 1);
    out.set("time", now_rfc3339());
    out.set("checks", std::move(list));
    std::printf("%s\n", json::dump(out, json::Style::kPretty).c_str());
  }
  return static_cast<int>(code);
}

}  // namespace dsf::fetch
