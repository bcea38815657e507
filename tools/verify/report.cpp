#include "tools/verify/report.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

#include "dsf/base/numeric.h"
#include "dsf/cli/version.h"
#include "dsf/manifest/path.h"

namespace dsf::verify {
namespace {

bool has(const FileReport& f, Severity s) {
  return std::any_of(f.findings.begin(), f.findings.end(), [&](const Finding& x) { return x.severity == s; });
}

const char* severity_name(Severity s) {
  return s == Severity::kError ? "error" : s == Severity::kWarning ? "warning" : "note";
}

std::string problem(const FileReport& f) {
  if (f.status == "missing") return "is missing; fetch it with dsf-fetch get";
  if (f.status == "wrong_size")
    return "is " + std::to_string(f.size.value_or(0)) + " bytes, " + std::to_string(f.expected_size.value_or(0)) +
           " expected; fetch it again with dsf-fetch get";
  if (f.status == "mismatch" && !f.bad_pieces.empty())
    return std::to_string(f.bad_pieces.size()) + " of its pieces differ, the first at byte " +
           std::to_string(f.bad_pieces.front() * f.piece_bytes) + "; run dsf-verify repair";
  if (f.status == "mismatch" && (f.sha256.empty() || f.expected_sha256.empty()))
    return "is not the expected content; run dsf-verify repair, or fetch it again with dsf-fetch get";
  if (f.status == "mismatch")
    return "sha256 differs (want " + f.expected_sha256.substr(0, 12) + ".., got " + f.sha256.substr(0, 12) +
           "..); fetch it again with dsf-fetch get";
  if (f.status == "not_regular") return "is not a regular file; replace the link or folder by the file itself";
  if (f.status == "unstable") return "changed while it was read; let the other program end and run again";
  if (f.status == "io_error") return f.detail + "; check the drive and run again";
  return "";
}

struct Count {
  uint64_t files = 0, bytes = 0, ok = 0, mismatch = 0, missing = 0, extra = 0, structure = 0, io_error = 0, other = 0;
};
Count count(const Report& r) {
  Count c;
  for (const FileReport& f : r.files) {
    ++c.files;
    c.bytes += f.size.value_or(0);
    if (f.status == "extra")
      ++c.extra;
    else if (f.status == "mismatch" || f.status == "wrong_size")
      ++c.mismatch;
    else if (f.status == "missing")
      ++c.missing;
    else if (f.status == "io_error")
      ++c.io_error;
    else if (f.status != "ok")
      ++c.other;
    else if (has(f, Severity::kError))
      ++c.structure;
    else
      ++c.ok;
  }
  return c;
}

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

json::Value item(const FileReport& f) {
  json::Value v = json::Value::object();
  v.set("path", f.path);
  v.set("status", f.status);
  const auto side = [&](const char* key, const std::optional<uint64_t>& size, const std::string& sha256) {
    if (!size && sha256.empty()) return;
    json::Value& s = v.set(key, json::Value::object());
    if (size) s.set("size", *size);
    if (!sha256.empty()) s.set("sha256", sha256);
  };
  side("expected", f.expected_size, f.expected_sha256);
  side("actual", f.size, f.sha256);
  if (!f.detail.empty()) v.set("detail", f.detail);
  if (!f.bad_pieces.empty()) {
    json::Value& list = v.set("bad_pieces", json::Value::array());
    const uint64_t size = f.size.value_or(0);
    for (const uint64_t i : f.bad_pieces)
      list.push(json::Object{{"index", i},
                             {"offset", i * f.piece_bytes},
                             {"length", std::min(f.piece_bytes, size - std::min(size, i * f.piece_bytes))}});
  }
  if (!f.findings.empty()) {
    json::Value& list = v.set("findings", json::Value::array());
    for (const Finding& x : f.findings)
      list.push(json::Object{{"code", x.code}, {"severity", severity_name(x.severity)}, {"text", x.text}});
  }
  return v;
}

}  // namespace

bool FileReport::bad() const { return (status != "ok" && status != "extra") || has(*this, Severity::kError); }

Verdict verdict(const Report& r) {
  Verdict v = Verdict::kOk;
  for (const FileReport& f : r.files) {
    if (f.status == "io_error") return Verdict::kIoError;
    if (f.bad())
      v = Verdict::kFailed;
    else if (v == Verdict::kOk && (f.status == "extra" || has(f, Severity::kWarning)))
      v = Verdict::kWarnings;
  }
  return v;
}

int exit_code(const Report& report, const Plan& plan) {
  switch (verdict(report)) {
    case Verdict::kOk:
      return static_cast<int>(Code::kOk);
    case Verdict::kWarnings:
      return static_cast<int>(plan.warnings_as_errors ? Code::kWarnings : Code::kOk);
    case Verdict::kFailed:
      return static_cast<int>(Code::kNo);
    case Verdict::kIoError:
      return static_cast<int>(Code::kLocal);
  }
  return static_cast<int>(Code::kBug);
}

manifest::Record to_record(const Report& r, const Plan& plan) {
  manifest::Record out;
  out.schema = "hub-verify";
  out.created_by = cli::tool_id("dsf-verify");
  out.inputs = r.inputs;
  for (const FileReport& f : r.files) out.items.push_back(item(f));
  const Count c = count(r);
  const Verdict v = verdict(r);
  json::Object& m = out.more;
  m.emplace_back("pin_sha256", r.pin_sha256.empty() ? json::Value() : json::Value(r.pin_sha256));
  m.emplace_back("evidence", r.evidence);
  m.emplace_back("level", level_name(plan.level));
  m.emplace_back("read_mode", "buffered");
  m.emplace_back("seed", r.seed);
  m.emplace_back("asked_hub", r.asked_hub);
  m.emplace_back("started", r.started);
  m.emplace_back("seconds", r.seconds);
  m.emplace_back("result", v == Verdict::kIoError ? "error" : v == Verdict::kFailed ? "failed" : "ok");
  m.emplace_back("totals", json::Object{{"files", c.files},
                                        {"bytes", c.bytes},
                                        {"ok", c.ok},
                                        {"mismatch", c.mismatch},
                                        {"missing", c.missing},
                                        {"extra", c.extra},
                                        {"structure", c.structure},
                                        {"io_error", c.io_error},
                                        {"other", c.other},
                                        {"hashed_bytes", r.hashed_bytes}});
  m.emplace_back("unchecked", json::Array(r.unchecked.begin(), r.unchecked.end()));
  return out;
}

void print(const Report& r, const Plan& plan, std::ostream& out, std::ostream& err) {
  for (const FileReport& f : r.files) {
    const std::string name = manifest::printable(f.path);
    if (const std::string what = problem(f); !what.empty()) err << "dsf-verify: " << name << ": " << what << "\n";
    if (f.status == "extra" && !plan.quiet)
      err << "dsf-verify: " << name << ": warning: the pin does not name this file\n";
    for (const Finding& x : f.findings)
      if (x.severity == Severity::kError)
        err << "dsf-verify: " << name << ": " << x.code << " " << manifest::printable(x.text) << "\n";
      else if (!plan.quiet)
        err << "dsf-verify: " << name << ": " << severity_name(x.severity) << ": " << x.code << " "
            << manifest::printable(x.text) << "\n";
  }
  const Count c = count(r);
  const auto failed =
      static_cast<uint64_t>(std::count_if(r.files.begin(), r.files.end(), [](const FileReport& f) { return f.bad(); }));
  if (failed > 1) err << "dsf-verify: " << failed << " of " << c.files << " files are wrong\n";
  if (plan.json) {
    out << manifest::write(to_record(r, plan));
    return;
  }
  if (failed == 0) {
    const double rate = r.seconds > 0 ? static_cast<double>(r.hashed_bytes) / r.seconds / 1e9 : 0;
    out << "OK " << c.files << " files, " << format_bytes(c.bytes) << ", " << decimals(r.seconds, 1) << " s, "
        << decimals(rate, 2) << " GB/s hashed (level " << level_name(plan.level) << ", against "
        << (r.evidence == "none" ? "nothing" : r.evidence) << ")\n";
  } else {
    out << "FAILED " << failed << " of " << c.files << "\n";
  }
  if (!plan.quiet)
    for (const std::string& u : r.unchecked) out << "not checked: " << u << "\n";
}

}  // namespace dsf::verify
