#include <algorithm>
#include <cstdio>
#include <map>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "tools/fetch/bundle.h"
#include "tools/fetch/bundle_read.h"

namespace dsf::fetch {
namespace {

// "<digest>  <name>" lines of X.bundle.SHA256SUMS.
Result<std::map<std::string, std::string>> read_sums(const std::filesystem::path& bundle) {
  DSF_TRY(const std::string text, io::read_text(sums_path(bundle), 16 * kMiB));
  std::map<std::string, std::string> out;
  for (size_t at = 0, end = text.find('\n'); end != std::string::npos; at = end + 1, end = text.find('\n', at)) {
    const std::string line = text.substr(at, end - at);
    if (line.size() < 67 || line.substr(64, 2) != "  " || !codec::Digest::from_hex(line.substr(0, 64)))
      return fail(Code::kContent, sums_path(bundle).string(), "has a malformed line", "copy it again", "bundle");
    out[line.substr(66)] = line.substr(0, 64);
  }
  return out;
}

class Checker {
 public:
  Checker(const BundleReader& reader, const std::function<bool()>& stop, bool quiet)
      : reader_(reader),
        stop_(stop),
        progress_("check " + reader.bundle().name, reader.members().back().end(), !quiet) {}

  // In stream order, so that each volume is read once for its own digest and for those of its files.
  Result<void> run(const std::map<std::string, std::string>& sums) {
    for (const Error& e : reader_.problems()) lines_.push_back(e.line());
    for (const auto& [name, digest] : sums) {
      const bool there = std::any_of(reader_.volumes().begin(), reader_.volumes().end(),
                                     [&, n = name](const Volume& v) { return v.path.filename() == n; });
      if (!there) lines_.push_back(name + ": is missing or unreadable; copy it again");
    }
    const Volume* volume = nullptr;
    for (const Frame& f : reader_.frames()) {
      if (stop_()) return fail(Code::kLocal, reader_.bundle().name, "stopped", "", "stopped");
      const Volume* next = reader_.volume_of(f);
      if (next != volume) {
        DSF_OK(end_volume(volume, sums));
        if (next != nullptr) DSF_OK(next->feed_head(whole_));
        volume = next;
      }
      DSF_OK(check_frame(f));
    }
    return end_volume(volume, sums);
  }
  const std::vector<std::string>& lines() const { return lines_; }
  size_t good_files() const { return good_; }

 private:
  Result<void> check_frame(const Frame& f) {
    const Member& m = reader_.members()[f.member];
    if (f.begin == m.begin) {
      file_ = codec::Sha256();
      file_bad_ = false;
    }
    const auto raw = reader_.read(f, &whole_);
    if (!raw && raw.error().code == Code::kLocal) return fail(raw.error());
    if (!raw && !file_bad_) lines_.push_back(manifest::printable(m.path) + ": " + raw.error().line());
    file_bad_ = file_bad_ || !raw;
    if (raw) file_.update(as_bytes(content_of(m, f, *raw).second));
    progress_.update(f.end);
    if (f.end != m.end() || !m.file || file_bad_) return {};
    const BundleFile& want = reader_.bundle().files[*m.file];
    const std::string got = file_.finish().hex();
    if (got == want.sha256) {
      ++good_;
    } else {
      lines_.push_back(manifest::printable(want.path) + ": sha256 differs (want " + want.sha256 + ", got " + got +
                       "); make the bundle again");
    }
    return {};
  }

  Result<void> end_volume(const Volume* v, const std::map<std::string, std::string>& sums) {
    if (v == nullptr) return {};
    DSF_OK(v->feed_tail(whole_));
    const std::string got = whole_.finish().hex(), name = v->path.filename().string();
    const auto want = sums.find(name);
    if (want == sums.end()) {
      lines_.push_back(name + ": is not in " + sums_path("").string().substr(1) + "; copy that file again");
    } else if (want->second != got) {
      lines_.push_back(name + ": sha256 differs (want " + want->second + ", got " + got + "); copy it again");
    }
    return {};
  }

  const BundleReader& reader_;
  const std::function<bool()>& stop_;
  cli::Progress progress_;
  codec::Sha256 whole_, file_;
  bool file_bad_ = false;
  size_t good_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace

Result<int> run_bundle_verify(const BundleVerifyOptions& o, const std::function<bool()>& stop, Events& events) {
  DSF_TRY(const auto sums, read_sums(o.bundle));
  DSF_TRY(const BundleReader reader, BundleReader::open(o.bundle));
  if (!o.key.empty()) DSF_OK(reader.check_signature(o.key));
  Checker checker(reader, stop, o.quiet);
  DSF_OK(checker.run(sums));
  for (const std::string& line : checker.lines()) {
    events.emit("problem", {{"text", line}});
    std::fprintf(stderr, "dsf-fetch: %s\n", line.c_str());
  }
  const bool ok = checker.lines().empty() && checker.good_files() == reader.bundle().files.size();
  events.emit("summary", {{"result", ok ? "ok" : "failed"},
                          {"files", reader.bundle().files.size()},
                          {"good_files", checker.good_files()},
                          {"problems", checker.lines().size()}});
  if (!events.enabled() && !o.quiet)
    std::printf("%s %zu of %zu files in %zu volumes\n", ok ? "OK" : "FAILED", checker.good_files(),
                reader.bundle().files.size(), reader.volumes().size());
  return ok ? 0 : static_cast<int>(Code::kNo);
}

}  // namespace dsf::fetch
