#include "tools/pack-engram/run.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <ostream>
#include <thread>

#include "dsf/base/numeric.h"
#include "dsf/cli/log.h"
#include "dsf/engram/packed_writer.h"
#include "dsf/manifest/pin.h"
#include "tools/pack-engram/check.h"
#include "tools/pack-engram/digests.h"
#include "tools/pack-engram/pack.h"
#include "tools/pack-engram/pin_check.h"
#include "tools/pack-engram/record.h"

namespace dsf::pack_engram {
namespace {

struct Work {
  std::vector<Outcome> outcomes;
  std::vector<Error> errors;  // of files whose work could not be done
};

// Runs one(i) for i = 0 .. n-1 on up to jobs threads. Outcomes keep their order; each file fails alone.
Work for_each_file(size_t n, int jobs, const std::function<Result<Outcome>(size_t)>& one) {
  std::vector<std::optional<Result<Outcome>>> results(n);
  std::atomic<size_t> next{0};
  const auto worker = [&] {
    for (size_t i = next++; i < n; i = next++) results[i] = one(i);
  };
  {
    std::vector<std::jthread> threads;
    for (size_t t = 1; t < std::min(n, static_cast<size_t>(jobs)); ++t) threads.emplace_back(worker);
    worker();
  }
  Work work;
  for (auto& r : results) {
    if (*r)
      work.outcomes.push_back(std::move(**r));
    else
      work.errors.push_back(std::move(*r).error());
  }
  return work;
}

// A file that is already right is kept; right size or right header alone is not "right".
Result<Outcome> pack_or_keep(const PackFile& file, const Source& source, bool force) {
  if (!force) {
    DSF_TRY(Outcome existing, compare_with_source(file, source, {.stop_at_first = true, .digests = true}));
    if (existing.good()) {
      existing.status = "kept";
      return existing;
    }
    if (existing.status != "missing")
      cli::log(cli::Level::kInfo, "packing again", {{"file", file.path.string()}, {"reason", existing.what}});
  }
  return pack_file(file, source);
}

Result<void> check_space(const Plan& plan, const std::vector<PackFile>& files) {
  uint64_t need = 64 * kMiB;
  for (const PackFile& f : files) {
    const auto present = io::file_size(f.path);
    const bool whole = present && *present == f.header.file_bytes();
    // A part file has its whole size reserved from the start.
    if ((plan.force || !whole) && !engram::has_part(f.path)) need += f.header.file_bytes();
  }
  std::filesystem::path existing = std::filesystem::absolute(plan.packs);
  while (!std::filesystem::exists(existing) && existing.has_parent_path() && existing != existing.root_path())
    existing = existing.parent_path();
  DSF_TRY(const uint64_t free, io::free_bytes(existing));
  if (free < need)
    return fail(Code::kLocal, plan.packs.string(), format_bytes(need) + " needed, " + format_bytes(free) + " free",
                "free disk space or choose another --output", "disk_full");
  return {};
}

Result<Work> pack(const Plan& plan, const Source& source, const std::vector<PackFile>& files) {
  DSF_OK(check_space(plan, files));
  if (plan.dry_run) {
    Work work;
    for (const PackFile& f : files) work.outcomes.push_back({.file = f, .status = "would_pack"});
    return work;
  }
  DSF_OK(io::make_dirs(plan.packs));
  DSF_TRY(const io::FileLock lock, io::FileLock::acquire(plan.packs / ".dsf-pack-engram.lock"));
  DSF_OK(remove_leftovers(plan.packs, plan.force));
  Work work =
      for_each_file(files.size(), plan.jobs, [&](size_t i) { return pack_or_keep(files[i], source, plan.force); });
  if (!work.errors.empty()) return work;
  for (const int rank : plan.ranks) {
    std::vector<Outcome> mine;
    bool written = false;
    for (const Outcome& o : work.outcomes)
      if (o.file.rank == rank) {
        mine.push_back(o);
        written = written || o.status == "packed";
      }
    const auto path = plan.packs / engram::pack_record_name(rank, plan.world);
    std::error_code ec;
    if (written || !std::filesystem::exists(path, ec))
      DSF_OK(io::write_file_atomic(path, manifest::write(make_record(plan, &source, mine, {}))));
  }
  return work;
}

Result<Work> check_digests(const Plan& plan) {
  std::vector<std::pair<PackFile, engram::RecordedPack>> files;
  for (const int rank : plan.ranks) {
    auto recorded = engram::load_pack_record(plan.packs, rank, plan.world);
    if (!recorded) {
      Error e = std::move(recorded).error();
      if (e.code == Code::kMissing) e.fix = "give --source to compare with the tables themselves";
      return fail(std::move(e));
    }
    for (auto& r : *recorded) files.emplace_back(PackFile{0, rank, plan.packs / r.file, r.header}, std::move(r));
  }
  return for_each_file(files.size(), plan.jobs,
                       [&](size_t i) { return compare_with_digests(files[i].first, files[i].second, plan); });
}

void print_people(const Plan& plan, const Work& work, std::ostream& out, std::ostream& err) {
  for (const Outcome& o : work.outcomes) {
    const engram::PackedHeader& h = o.file.header;
    if (!o.good()) {
      Error e{Code::kNo, o.file.path.string(), o.what,
              "pack it again with dsf-pack-engram --source ... --output " + plan.packs.string(), o.status};
      err << "dsf-pack-engram: " << e.line() << "\n";
    } else if (!plan.json) {
      const std::string rows =
          o.status == "ok"
              ? std::to_string(o.rows_compared) + " of " + std::to_string(h.hi - h.lo) + " rows compared"
              : "rows " + std::to_string(h.lo) + " to " + std::to_string(h.hi) + ", " + format_bytes(h.file_bytes());
      out << o.file.path.string() << ": " << o.status << " (" << rows << ")\n";
    }
  }
  for (const Error& e : work.errors) err << "dsf-pack-engram: " << e.line() << "\n";
}

Result<int> finish(const Plan& plan, const Source* source, const Work& work, std::ostream& out, std::ostream& err) {
  print_people(plan, work, out, err);
  const manifest::Record record = make_record(plan, source, work.outcomes, work.errors);
  if (plan.json) out << manifest::write(record);
  if (!plan.report.empty() && !plan.dry_run) DSF_OK(io::write_file_atomic(plan.report, manifest::write(record)));
  Code code = Code::kOk;
  size_t wrong = work.errors.size();
  for (const Outcome& o : work.outcomes)
    if (!o.good()) {
      code = worst(code, Code::kNo);
      ++wrong;
    }
  for (const Error& e : work.errors) code = worst(code, e.code);
  const size_t total = work.outcomes.size() + work.errors.size();
  if (wrong > 1) err << "dsf-pack-engram: " << wrong << " of " << total << " files are wrong\n";
  if (!plan.json && plan.sample_rows > 0)
    out << "sampled with --seed " << plan.seed << ": damage between the sampled rows is not seen\n";
  if (!plan.json && plan.mode == Mode::kPack && plan.pin.empty() && wrong == 0)
    out << "not checked: that the source is the revision you want, and its bytes (no --pin; dsf-verify proves them)\n";
  if (!plan.json && plan.mode == Mode::kCheckDigests && wrong == 0)
    out << "compared with the packing record, not with the source tables\n";
  return static_cast<int>(code);
}

Result<int> run_recombine(const Plan& plan, std::ostream& out, std::ostream& err) {
  DSF_TRY(const std::vector<LayerDigest> digests, recombine(plan));
  const std::string report = manifest::write(make_record(plan, digests));
  if (plan.json) out << report;
  if (!plan.report.empty()) DSF_OK(io::write_file_atomic(plan.report, report));
  Code code = Code::kOk;
  for (const LayerDigest& d : digests) {
    const std::string subject = "layer " + std::to_string(d.layer);
    if (!d.good()) {
      code = Code::kNo;
      err << "dsf-pack-engram: "
          << Error{Code::kNo, subject,
                   "the whole table's sha256 is " + d.sha256.substr(0, 12) + ".., " + d.expected.substr(0, 12) +
                       ".. expected",
                   "pack again from the right revision", "content"}
                 .line()
          << "\n";
    } else if (!plan.json) {
      out << subject << ": " << d.sha256 << " (" << d.rows << " rows, "
          << (d.expected.empty() ? "not checked: nothing to compare with, pass --expect" : "as " + d.source) << ")\n";
    }
  }
  return static_cast<int>(code);
}

}  // namespace

Result<int> run(const Plan& plan, std::ostream& out, std::ostream& err) {
  if (plan.mode == Mode::kRecombine) return run_recombine(plan, out, err);
  if (plan.mode == Mode::kCheckDigests) {
    DSF_TRY(const Work work, check_digests(plan));
    return finish(plan, nullptr, work, out, err);
  }
  DSF_TRY(const Source source, open_source(plan));
  if (!plan.pin.empty()) DSF_OK(check_against_pin(plan, source));
  if (plan.mode == Mode::kList) {
    for (const auto& f : source.rows->files()) out << f.string() << "\n";
    return 0;
  }
  DSF_TRY(const std::vector<PackFile> files, files_of(plan, source.layout));
  if (plan.mode == Mode::kCheckSource) {
    const Comparison how{.sample_rows = plan.sample_rows, .seed = plan.seed};
    return finish(
        plan, &source,
        for_each_file(files.size(), plan.jobs, [&](size_t i) { return compare_with_source(files[i], source, how); }),
        out, err);
  }
  DSF_TRY(const Work work, pack(plan, source, files));
  return finish(plan, &source, work, out, err);
}

}  // namespace dsf::pack_engram
