#include "tools/verify/run.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/signals.h"
#include "dsf/io/file.h"
#include "dsf/manifest/path.h"
#include "tools/verify/codebook_check.h"
#include "tools/verify/evidence.h"
#include "tools/verify/hashing.h"
#include "tools/verify/index_check.h"
#include "tools/verify/pieces.h"
#include "tools/verify/remote.h"
#include "tools/verify/stamping.h"
#include "tools/verify/statement.h"
#include "tools/verify/structure.h"
#include "tools/verify/sums.h"

namespace dsf::verify {
namespace {

namespace fs = std::filesystem;

// Bookkeeping of downloaders, and files that talk about the others.
bool bookkeeping(const std::string& path, const Plan& plan) {
  if (path.starts_with(".cache/") || path.find("/.cache/") != std::string::npos || path == "SHA256SUMS") return true;
  std::error_code ec;
  for (const fs::path& own : {plan.pin, plan.sums, plan.report, plan.write_sums, plan.in_toto, plan.write_pieces})
    if (!own.empty() && fs::exists(own, ec) && fs::equivalent(own, plan.dir / path, ec)) return true;
  return false;
}

// A cached snapshot links each name to a content-addressed blob beside it; every other link could point anywhere.
bool cache_link(const fs::path& path) {
  std::error_code ec;
  const fs::path target = fs::read_symlink(path, ec);
  return !ec && target.is_relative() && target.parent_path().filename() == "blobs" && fs::is_regular_file(path, ec);
}

bool left_unfinished(const std::string& path) {
  return path.ends_with(".part") || path.ends_with(".incomplete") || path.ends_with(".aria2");
}

class Examination {
 public:
  Examination(const Plan& plan, Evidence evidence)
      : plan_(plan), evidence_(std::move(evidence)), stamping_(plan, evidence_.kind) {
    out_.seed = static_cast<uint64_t>(unix_time_ms());
  }

  Result<Report> run() {
    const int64_t start = monotonic_ns();
    out_.started = now_rfc3339();
    out_.evidence = evidence_.kind;
    out_.inputs = evidence_.inputs;
    out_.pin_sha256 = evidence_.pin_sha256;
    out_.unchecked = evidence_.unchecked;
    DSF_OK(collect());
    for (FileReport& f : out_.files) stat(f);
    if (plan_.level != Level::kStat) {
      DSF_OK(structures());
      DSF_OK(indexes());
      codebooks();
      hash();
    }
    if (plan_.level == Level::kHub) DSF_OK(ask_hub());
    say_what_was_not_checked();
    out_.seconds = static_cast<double>(monotonic_ns() - start) * 1e-9;
    return std::move(out_);
  }

 private:
  const Expected* expected(const std::string& path) const {
    const auto it = evidence_.files.find(path);
    return it == evidence_.files.end() ? nullptr : &it->second;
  }

  // Expected files and files that are there, by path.
  Result<void> collect() {
    DSF_TRY(const auto present, io::list_files(plan_.dir));
    std::map<std::string, FileReport> all;
    for (const auto& [path, e] : evidence_.files)
      all[path] = {.path = path, .expected_size = e.size, .expected_sha256 = e.sha256};
    for (const std::string& path : present) {
      if (bookkeeping(path, plan_) || all.contains(path)) continue;
      FileReport f{.path = path};
      if (evidence_.complete) f.status = "extra";
      if (evidence_.complete && plan_.no_extra)
        f.findings.push_back(
            {"EX01", Severity::kError, "the pin does not name this file; remove it or leave out --no-extra"});
      if (left_unfinished(path))
        f.findings.push_back(
            {"EX02", Severity::kWarning, "looks like an unfinished download; run dsf-fetch get again"});
      all[path] = std::move(f);
    }
    for (auto& [path, f] : all) out_.files.push_back(std::move(f));
    if (out_.files.empty())
      return fail(Code::kMissing, plan_.dir.string(), "there is nothing to verify here",
                  "pass the folder of the checkpoint", "missing");
    return {};
  }

  void stat(FileReport& f) const {
    const fs::path path = plan_.dir / f.path;
    std::error_code ec;
    const auto type = fs::symlink_status(path, ec).type();
    if (type == fs::file_type::not_found)
      f.status = "missing";
    else if (type == fs::file_type::symlink && !cache_link(path))
      f.status = "not_regular";
    else if (type != fs::file_type::symlink && type != fs::file_type::regular)
      f.status = "not_regular";
    if (f.status != "ok" && f.status != "extra") return;
    const auto size = io::file_size(path);
    if (!size) {
      f.status = "io_error";
      f.detail = size.error().what;
      return;
    }
    f.size = *size;
    if (f.expected_size && *f.expected_size != *size) f.status = "wrong_size";
  }

  static bool readable(const FileReport& f) {
    return f.status == "ok" || f.status == "extra" || f.status == "wrong_size";
  }

  Result<void> structures() {
    for (FileReport& f : out_.files) {
      if (!f.path.ends_with(".safetensors") || !readable(f)) continue;
      auto s = check_structure(plan_.dir / f.path, expected(f.path));
      if (!s) {
        f.status = "io_error";
        f.detail = s.error().what;
        continue;
      }
      f.structure_checked = true;
      // The size says it already; a second line about the same missing bytes would only repeat it.
      if (f.status != "wrong_size") f.findings.insert(f.findings.end(), s->findings.begin(), s->findings.end());
      structures_[f.path] = std::move(*s);
    }
    return {};
  }

  Result<void> indexes() {
    const auto expected_here = [&](const std::string& path) { return evidence_.files.contains(path); };
    for (FileReport& f : out_.files) {
      if (!f.path.ends_with(".index.json") || !readable(f)) continue;
      ++n_indexes_;
      // A shard that a pin misses is reported as that file; the index would only say it again.
      DSF_TRY(auto findings, check_index(plan_, f.path, structures_, expected_here));
      for (Finding& x : findings)
        if (x.code != "IX03" || !named_as_missing(x.text)) f.findings.push_back(std::move(x));
    }
    return {};
  }
  void codebooks() {
    for (auto& [path, finding] : check_codebooks(plan_, structures_))
      for (FileReport& f : out_.files)
        if (f.path == path) f.findings.push_back(std::move(finding));
  }
  bool named_as_missing(const std::string& text) const {
    return std::any_of(out_.files.begin(), out_.files.end(), [&](const FileReport& f) {
      return f.status == "missing" &&
             text.find("names " + f.path.substr(f.path.rfind('/') + 1) + ",") != std::string::npos;
    });
  }

  Result<void> ask_hub() {
    DSF_TRY(const auto shared, connect(plan_));
    DSF_TRY(auto findings, compare_with_hub(plan_, evidence_, shared));
    for (auto& [path, finding] : findings) {
      const auto it = std::find_if(out_.files.begin(), out_.files.end(),
                                   [&, p = path](const FileReport& f) { return f.path == p; });
      if (it != out_.files.end())
        it->findings.push_back(std::move(finding));
      else
        out_.files.push_back({.path = path, .status = "missing", .findings = {std::move(finding)}});
    }
    std::sort(out_.files.begin(), out_.files.end(),
              [](const FileReport& a, const FileReport& b) { return a.path < b.path; });
    out_.asked_hub = true;
    return {};
  }

  // Level quick and a large file: a stamp, or some of its pieces, must do.
  bool known_otherwise(FileReport& f) {
    if (stamping_.holds(f)) {
      f.sha256 = f.expected_sha256;
      ++n_stamped_;
      return true;
    }
    const Expected* e = expected(f.path);
    if (e == nullptr || e->pieces.empty()) return false;
    ++n_sampled_;
    const auto same = sample_pieces(plan_.dir / f.path, *e, out_.seed);
    if (!same) {
      f.status = "io_error";
      f.detail = same.error().what;
    } else if (!*same) {
      f.status = "mismatch";
    }
    return true;
  }

  void hash() {
    std::vector<HashJob> jobs;
    uint64_t total = 0;
    for (size_t i = 0; i < out_.files.size(); ++i) {
      FileReport& f = out_.files[i];
      if (f.status != "ok" || !f.size) continue;
      if (plan_.level == Level::kQuick && *f.size >= kSmallFileBytes) {
        if (!known_otherwise(f)) ++n_not_hashed_;
        continue;
      }
      jobs.push_back({plan_.dir / f.path, *f.size, i});
      total += *f.size;
    }
    std::atomic<uint64_t> done{0};
    std::vector<Hashed> results;
    {
      // Progress is drawn by this thread's helper; the workers only count.
      cli::Progress progress("verify", total, !plan_.quiet);
      std::jthread painter([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          progress.update(done);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      });
      results = hash_files(std::move(jobs), plan_.jobs, done);
    }
    for (Hashed& h : results) judge(out_.files[h.tag], h);
    out_.hashed_bytes = done;
    if (!cli::stop_requested()) stamping_.update(out_.files);
  }

  void judge(FileReport& f, Hashed& h) const {
    if (!h.digest) {
      f.status = h.digest.error().code == Code::kMissing ? "missing" : "io_error";
      f.detail = h.digest.error().what;
      return;
    }
    f.sha256 = h.digest->hex();
    if (h.unstable)
      f.status = "unstable";
    else if (!f.expected_sha256.empty() && f.sha256 != f.expected_sha256)
      f.status = "mismatch";
    else if (const Expected* e = expected(f.path); e != nullptr && !e->git_sha1.empty())
      judge_git(f, e->git_sha1);
    if (const Expected* e = expected(f.path); f.status == "mismatch" && e != nullptr && !e->pieces.empty()) {
      f.piece_bytes = e->piece_bytes;
      if (const auto bad = bad_pieces(plan_.dir / f.path, *e)) f.bad_pieces = *bad;
    }
  }

  // Small files of the Hub that are known by their git blob id alone.
  void judge_git(FileReport& f, const std::string& want) const {
    const auto have = codec::git_blob_sha1_file(plan_.dir / f.path);
    if (!have || *have != want)
      f.status = "mismatch";
    else
      f.by_git = true;
  }

  void say_what_was_not_checked() {
    if (plan_.level == Level::kStat)
      out_.unchecked.push_back("digests, safetensors structure and index: level stat looks at names and sizes only");
    if (n_stamped_ > 0)
      out_.unchecked.push_back(
          "the content of " + std::to_string(n_stamped_) +
          " large files today: their stamps say that they have not changed since they were verified");
    if (n_sampled_ > 0)
      out_.unchecked.push_back("all of " + std::to_string(n_sampled_) +
                               " large files: up to sixteen pieces of each were hashed (seed " + std::to_string(out_.seed) +
                               ")");
    if (n_not_hashed_ > 0)
      out_.unchecked.push_back("the content of " + std::to_string(n_not_hashed_) +
                               " files of 16 MiB or more: level quick does not hash them");
    if (plan_.level != Level::kStat && n_indexes_ == 0 && !structures_.empty())
      out_.unchecked.push_back("completeness of the tensors: there is no *.index.json");
    size_t without = 0;
    for (const FileReport& f : out_.files)
      without += f.status == "ok" && f.expected_sha256.empty() && !f.by_git ? 1 : 0;
    if (without > 0 && evidence_.kind != "none")
      out_.unchecked.push_back("the content of " + std::to_string(without) + " files that the " + evidence_.kind +
                               " gives no digest for");
    out_.unchecked.push_back("whether tensors have the shapes that config.json needs: dsf-preflight does that");
  }

  const Plan& plan_;
  Evidence evidence_;
  Report out_;
  Structures structures_;
  Stamping stamping_;
  size_t n_indexes_ = 0, n_not_hashed_ = 0, n_stamped_ = 0, n_sampled_ = 0;
};

// What others can check or sign; only of a folder that is right.
Result<void> write_exports(const Report& report, const Plan& plan) {
  if (!plan.write_sums.empty()) {
    std::map<std::string, std::string> sums;
    for (const FileReport& f : report.files) sums[f.path] = f.sha256;
    DSF_OK(io::write_file_atomic(plan.write_sums, format_sums(sums)));
  }
  if (!plan.in_toto.empty()) {
    const auto folder = fs::weakly_canonical(plan.dir).filename().string();
    DSF_OK(io::write_file_atomic(plan.in_toto, in_toto_statement(report, folder)));
  }
  if (!plan.write_pieces.empty()) DSF_OK(write_pieces(plan));
  return {};
}

}  // namespace

Result<Report> examine(const Plan& plan) {
  std::error_code ec;
  if (!fs::is_directory(plan.dir, ec))
    return fail(Code::kMissing, plan.dir.string(), "no such folder", "pass the folder to verify", "missing");
  DSF_TRY(Evidence evidence, load_evidence(plan));
  return Examination(plan, std::move(evidence)).run();
}

Result<int> run(const Plan& plan, std::ostream& out, std::ostream& err) {
  DSF_TRY(const Report report, examine(plan));
  if (cli::stop_requested())
    return fail(Code::kLocal, plan.dir.string(), "stopped by a signal, nothing was proven", "run it again", "stopped");
  print(report, plan, out, err);
  const int code = exit_code(report, plan);
  if (!plan.report.empty()) DSF_OK(io::write_file_atomic(plan.report, manifest::write(to_record(report, plan))));
  if (code == 0) DSF_OK(write_exports(report, plan));
  return code;
}

}  // namespace dsf::verify
