#include "tools/preflight/report.h"

#include <algorithm>
#include <ostream>

#include "dsf/base/time.h"
#include "dsf/cli/version.h"
#include "dsf/manifest/path.h"

namespace dsf::preflight {

const char* status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kNote:
      return "note";
    case Status::kWarning:
      return "warning";
    case Status::kFail:
      return "fail";
    case Status::kSkipped:
      return "skipped";
  }
  return "";
}

json::Value item_of(const Outcome& o) {
  json::Value v = json::Value::object();
  v.set("id", o.id);
  v.set("status", status_name(o.status));
  if (!o.summary.empty()) v.set("summary", o.summary);
  if (!o.findings.empty()) {
    json::Value& list = v.set("findings", json::Value::array());
    for (const Finding& f : o.findings)
      list.push(json::Object{{"status", status_name(f.status)}, {"class", f.cls}, {"text", f.text}, {"fix", f.fix}});
  }
  if (o.more > 0) v.set("more", o.more);
  return v;
}

manifest::Record to_record(const Context& c, const std::vector<Outcome>& outcomes) {
  manifest::Record r;
  r.schema = "preflight";
  r.created_by = cli::tool_id("dsf-preflight");
  r.inputs = c.inputs;
  bool ready = true;
  for (const Outcome& o : outcomes) {
    r.items.push_back(item_of(o));
    ready = ready && o.status != Status::kFail;
  }
  r.more.emplace_back("finished", now_rfc3339());
  r.more.emplace_back("rank", c.plan.rank);
  r.more.emplace_back("world_size", c.plan.world_size);
  r.more.emplace_back("result", ready ? "ready" : "not ready");
  json::Value facts = json::Value::object();
  for (const auto& [key, value] : c.facts) facts.set(key, value);
  r.more.emplace_back("facts", std::move(facts));
  return r;
}

void print_findings(const std::vector<Outcome>& outcomes, bool quiet, std::ostream& err) {
  size_t failed = 0;
  for (const Outcome& o : outcomes) {
    failed += o.status == Status::kFail ? 1 : 0;
    for (const Finding& f : o.findings) {
      if (f.status != Status::kFail && quiet) continue;
      const std::string kind = f.status == Status::kFail ? "" : std::string(status_name(f.status)) + ": ";
      err << "dsf-preflight: " << kind << o.id << ": " << manifest::printable(f.text) << "; "
          << manifest::printable(f.fix) << "\n";
    }
    if (o.more > 0) err << "dsf-preflight: " << o.id << ": and " << o.more << " more of this kind\n";
  }
  if (failed > 1) err << "dsf-preflight: " << failed << " of " << outcomes.size() << " checks failed\n";
}

void print_table(const std::vector<Outcome>& outcomes, std::ostream& out) {
  for (const Outcome& o : outcomes) {
    const std::string status = status_name(o.status);
    out << status << std::string(8 - status.size(), ' ') << " " << o.id
        << std::string(o.id.size() < 20 ? 20 - o.id.size() : 1, ' ') << o.summary << "\n";
  }
}

void print(const Context& c, const std::vector<Outcome>& outcomes, std::ostream& out, std::ostream& err) {
  print_findings(outcomes, c.plan.quiet, err);
  if (c.plan.json) {
    out << manifest::write(to_record(c, outcomes));
    return;
  }
  print_table(outcomes, out);
  const bool ready =
      std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.status == Status::kFail; });
  out << (ready ? "READY" : "NOT READY") << "\n";
}

}  // namespace dsf::preflight
