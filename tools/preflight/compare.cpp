#include "tools/preflight/compare.h"

#include <algorithm>
#include <map>
#include <ostream>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "tools/preflight/checks.h"
#include "tools/preflight/report.h"

namespace dsf::preflight {
namespace {

constexpr uint64_t kMemoryDifference = 4 * kGiB;

struct Side {
  std::filesystem::path path;
  std::string created_by, result;
  int64_t rank = 0, world = 1;
  std::map<std::string, std::string> values;  // facts, and "input NAME" for every file read
};

Result<Side> load(const std::filesystem::path& path) {
  DSF_TRY(const manifest::Record record, manifest::load_record(path, "preflight"));
  Side s;
  s.path = path;
  s.created_by = record.created_by;
  const json::Value all = manifest::to_json(record);
  const json::Cursor root(all, path.string());
  DSF_TRY(s.result, root.string_at("result"));
  DSF_TRY(s.rank, root.integer_at("rank"));
  DSF_TRY(s.world, root.integer_at("world_size"));
  DSF_TRY(const json::Cursor facts, root.at("facts"));
  if (!facts.value().is_object()) return facts.fail("object expected");
  for (const auto& [key, value] : facts.value().as_object())
    if (value.is_string()) s.values[key] = value.as_string();
  for (const manifest::Input& i : record.inputs)
    if (!i.path.starts_with("engram-r")) s.values["input " + i.path] = i.sha256;  // packing records differ by rank
  return s;
}

// What must be equal, what should be, and what is each node's own. The first prefix that fits decides.
struct Rule {
  std::string_view prefix;
  Status difference;  // kOk: not compared
  const char* fix;
};
constexpr const char* kSameFiles = "fetch the same revision on both, with the same pin";
constexpr const char* kSameBuild = "install the same build on both";
constexpr Rule kRules[] = {
    {"input ", Status::kFail, kSameFiles},
    {"shards_sha256", Status::kFail, kSameFiles},
    {"tensors", Status::kFail, kSameFiles},
    {"packed_matrices", Status::kFail, kSameFiles},
    {"codebook", Status::kFail, kSameFiles},
    {"router_bias_sha256", Status::kFail, kSameFiles},
    {"routers_attached", Status::kFail, kSameFiles},
    {"image_bias", Status::kFail, "give both nodes the same biases: ranks that differ route images differently"},
    {"engram_token_map_sha256", Status::kFail, kSameFiles},
    {"engram_source_sha256", Status::kFail, "pack both nodes from one source"},
    {"binary_", Status::kFail, kSameBuild},
    {"gpu_arch", Status::kFail, "use machines of one kind"},
    {"gpu", Status::kWarning, "use machines of one kind"},
    {"driver", Status::kWarning, "install the same driver on both"},
    {"kernel", Status::kWarning, "boot the same kernel on both"},
    {"page_bytes", Status::kWarning, "boot the same kernel on both"},
};

class Comparison {
 public:
  Comparison(const Side& a, const Side& b) : a_(a), b_(b) {}

  std::vector<Outcome> run() {
    ready();
    ranks();
    values();
    packs();
    memory();
    return std::move(out_);
  }

 private:
  Outcome& topic(const char* id) {
    out_.push_back({.id = id, .status = Status::kOk, .summary = {}, .findings = {}, .more = 0});
    return out_.back();
  }

  void ready() {
    Outcome& o = topic("pair.ready");
    for (const Side* s : {&a_, &b_})
      if (s->result != "ready")
        o.add({Status::kFail, "not_ready", s->path.string() + ": this node is not ready by itself",
               "run dsf-preflight there and follow its lines"});
    if (a_.created_by != b_.created_by)
      o.add({Status::kFail, "version",
             a_.path.string() + ": written by " + a_.created_by + ", the other by " + b_.created_by, kSameBuild});
    o.summary = a_.result + ", " + b_.result;
  }

  void ranks() {
    Outcome& o = topic("pair.ranks");
    o.summary =
        "ranks " + std::to_string(a_.rank) + " and " + std::to_string(b_.rank) + " of " + std::to_string(a_.world);
    if (a_.world != b_.world)
      o.add({Status::kFail, "world",
             b_.path.string() + ": is of world size " + std::to_string(b_.world) + ", the other of " +
                 std::to_string(a_.world),
             "run both with one --world-size"});
    if (a_.rank == b_.rank)
      o.add({Status::kFail, "rank", b_.path.string() + ": has the same rank as the other",
             "pass each node its own --rank"});
  }

  void values() {
    Outcome& o = topic("pair.values");
    size_t compared = 0;
    std::map<std::string, int> keys;
    for (const Side* s : {&a_, &b_})
      for (const auto& [key, value] : s->values) ++keys[key];
    for (const auto& [key, n] : keys) {
      const auto rule = std::find_if(std::begin(kRules), std::end(kRules),
                                     [&, k = std::string_view(key)](const Rule& r) { return k.starts_with(r.prefix); });
      if (rule == std::end(kRules)) continue;
      ++compared;
      if (n == 1) {
        const Side& without = a_.values.contains(key) ? b_ : a_;
        // Proof of the shards on one node alone proves nothing about the pair.
        o.add({rule->difference, "one_side", without.path.string() + ": has no " + key + ", the other has", rule->fix});
      } else if (a_.values.at(key) != b_.values.at(key)) {
        o.add({rule->difference, "differs",
               key + ": " + shortened(a_.values.at(key)) + " here, " + shortened(b_.values.at(key)) + " there",
               rule->fix});
      }
    }
    if (!keys.contains("shards_sha256"))
      o.add({Status::kWarning, "unproven",
             "shards: neither node has proven its weights, equal headers are all that is known",
             "run dsf-verify on both, then dsf-preflight again"});
    o.summary = std::to_string(compared) + " values compared";
  }

  static std::string shortened(const std::string& v) { return v.size() == 64 ? v.substr(0, 12) + ".." : v; }

  // "engram_rows_L" is "lo-hi/total"; neighbours must join.
  void packs() {
    Outcome& o = topic("pair.packs");
    const Side& first = a_.rank < b_.rank ? a_ : b_;
    const Side& second = a_.rank < b_.rank ? b_ : a_;
    size_t layers = 0;
    for (const auto& [key, rows] : first.values) {
      if (!key.starts_with("engram_rows_")) continue;
      ++layers;
      const auto other = second.values.find(key);
      if (other == second.values.end()) {
        o.add({Status::kFail, "one_side", second.path.string() + ": has no " + key,
               "pack this rank's rows with dsf-pack-engram"});
        continue;
      }
      const std::string total = rows.substr(rows.find('/') + 1),
                        end = rows.substr(rows.find('-') + 1, rows.find('/') - rows.find('-') - 1);
      const std::string begin = other->second.substr(0, other->second.find('-')),
                        other_total = other->second.substr(other->second.find('/') + 1);
      if (total != other_total || (second.rank == first.rank + 1 && begin != end))
        o.add({Status::kFail, "rows", key + ": rows " + rows + " and " + other->second + " do not join",
               "pack both nodes from one source with one --world-size"});
    }
    o.summary = layers == 0 ? "no packed rows reported" : std::to_string(layers) + " layers join";
  }

  void memory() {
    Outcome& o = topic("pair.memory");
    const auto of = [](const Side& s) {
      const auto it = s.values.find("machine_memory");
      return it == s.values.end() ? uint64_t{0} : parse_u64(it->second).value_or(0);
    };
    const uint64_t a = of(a_), b = of(b_), difference = std::max(a, b) - std::min(a, b);
    o.summary = format_bytes(a) + " and " + format_bytes(b);
    if (difference > kMemoryDifference)
      o.add({Status::kWarning, "memory",
             "memory: the nodes differ by " + format_bytes(difference) + ", the smaller one decides",
             "plan with the smaller node's --memory"});
  }

  const Side &a_, &b_;
  std::vector<Outcome> out_;
};

manifest::Record to_record(const RawCompare& raw, const std::vector<Outcome>& outcomes, bool fits) {
  manifest::Record r;
  r.schema = "preflight-compare";
  r.created_by = cli::tool_id("dsf-preflight");
  for (const std::string& path : {raw.a, raw.b}) {
    const auto digest = codec::sha256_file(path);
    r.inputs.push_back({std::filesystem::path(path).filename().string(), digest ? digest->hex() : ""});
  }
  for (const Outcome& o : outcomes) r.items.push_back(item_of(o));
  r.more.emplace_back("finished", now_rfc3339());
  r.more.emplace_back("result", fits ? "pair" : "no pair");
  return r;
}

}  // namespace

void describe_compare(cli::Command& command, RawCompare& raw) {
  command.positional("A", raw.a, "report of one node (dsf-preflight --report)");
  command.positional("B", raw.b, "report of the other");
  command.option("--report", raw.report, "write the record here", "FILE");
  command.common(raw.common, cli::kJson);
}

Result<int> compare(const RawCompare& raw, std::ostream& out, std::ostream& err) {
  DSF_TRY(const Side a, load(raw.a));
  DSF_TRY(const Side b, load(raw.b));
  const std::vector<Outcome> outcomes = Comparison(a, b).run();
  const bool fits =
      std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.status == Status::kFail; });
  print_findings(outcomes, raw.common.quiet, err);
  const std::string record = manifest::write(to_record(raw, outcomes, fits));
  if (raw.common.json)
    out << record;
  else {
    print_table(outcomes, out);
    out << (fits ? "PAIR" : "NO PAIR") << "\n";
  }
  if (!raw.report.empty()) DSF_OK(io::write_file_atomic(raw.report, record));
  return static_cast<int>(fits ? Code::kOk : Code::kNo);
}

}  // namespace dsf::preflight
