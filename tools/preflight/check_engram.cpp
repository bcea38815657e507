// engram.rows and engram.content. Source: engram.md 6.4, 7.
#include <algorithm>
#include <random>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/rows.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

constexpr int64_t kSampleRows = 256;

// The packed files against the digests that the packer noted. True when a record was there.
bool compare_with_record(Context& c, Outcome& out, uint64_t seed) {
  const engram::BlockChoice choice{.all = c.plan.deep, .seed = seed};
  const auto compared = engram::compare_with_record(c.plan.engram, c.plan.rank, c.plan.world_size, choice);
  if (!compared) {
    if (compared.error().code != Code::kMissing) out.add(finding_of(compared.error()));
    return false;
  }
  const auto record_path = c.plan.engram / engram::pack_record_name(c.plan.rank, c.plan.world_size);
  c.read(record_path);
  if (const auto record = manifest::load_record(record_path, engram::kPackRecordSchema)) {
    std::string lines;
    for (const manifest::Input& i : record->inputs) lines += i.sha256 + "  " + i.path + "\n";
    c.facts["engram_source_sha256"] = codec::sha256(lines).hex();
  }
  for (const Error& e : compared->wrong) out.add(finding_of(e));
  out.summary = std::to_string(compared->blocks_read) + " of " + std::to_string(compared->blocks) +
                " blocks equal the packing record";
  return true;
}

// Where the model folder has the tables themselves, random rows of both must be equal: a record cannot tell that the
// wrong tables were packed.
bool compare_with_tables(Context& c, Outcome& out, std::mt19937_64& rng) {
  const std::string tensor = "layers." + std::to_string(c.layout->layers().front().layer_id) + ".engram.embed.weight";
  if (!c.checkpoint || !c.checkpoint->contains(tensor)) return false;
  const auto tables = engram::CheckpointRows::open(c.plan.model, *c.layout);
  const auto packed =
      engram::PackedRows::open(c.plan.engram, *c.layout, {.world = c.plan.world_size, .rank = c.plan.rank});
  if (!tables || !packed) return false;  // engram.rows or tensors.table says so
  const auto row_bytes = static_cast<size_t>(c.layout->row_bytes());
  for (size_t l = 0; l < c.layout->layers().size(); ++l) {
    const engram::RowRange own = (*packed)->owned(l);
    std::vector<int64_t> rows{own.begin, own.end - 1};
    for (int64_t i = 0; i < kSampleRows; ++i)
      rows.push_back(own.begin + static_cast<int64_t>(rng() % static_cast<uint64_t>(own.size())));
    std::vector<std::byte> a(rows.size() * row_bytes), b(a.size());
    const auto ra = (*tables)->read(l, rows, a);
    const auto rb = (*packed)->read(l, rows, b);
    if (!ra || !rb) {
      out.add(finding_of(ra ? rb.error() : ra.error()));
      continue;
    }
    const auto difference = std::mismatch(a.begin(), a.end(), b.begin());
    if (difference.first != a.end())
      out.add({Status::kFail, "content",
               c.plan.engram.string() + ": layer " + std::to_string(c.layout->layers()[l].layer_id) + " row " +
                   std::to_string(rows[static_cast<size_t>(difference.first - a.begin()) / row_bytes]) +
                   " differs from the tables in the model folder",
               "pack it again with dsf-pack-engram --force"});
  }
  out.summary += std::string(out.summary.empty() ? "" : ", ") + std::to_string(kSampleRows + 2) +
                 " random rows a layer equal the tables";
  return true;
}

}  // namespace

void check_engram_rows(Context& c, Outcome& out) {
  if (!c.config) return Context::skip(out, "needs config.valid");
  if (c.config->engram_layer_ids.empty()) return Context::skip(out, "this model has no Engram tables");
  if (!c.layout) return Context::skip(out, "needs config.valid");
  if (!c.plan.engram.empty()) {
    const auto packed =
        engram::PackedRows::open(c.plan.engram, *c.layout, {.world = c.plan.world_size, .rank = c.plan.rank});
    if (!packed) return out.add(finding_of(packed.error()));
    for (size_t l = 0; l < c.layout->layers().size(); ++l) {
      const engram::RowRange own = (*packed)->owned(l);
      const auto& layer = c.layout->layers()[l];
      c.facts["engram_rows_" + std::to_string(layer.layer_id)] =
          std::to_string(own.begin) + "-" + std::to_string(own.end) + "/" + std::to_string(layer.rows);
    }
    out.summary = std::to_string(c.layout->layers().size()) + " packed files of rank " + std::to_string(c.plan.rank) +
                  " of " + std::to_string(c.plan.world_size);
    return;
  }
  const auto tables = engram::CheckpointRows::open(c.plan.model, *c.layout);
  if (!tables) {
    Finding f = finding_of(tables.error());
    f.fix = "pass --engram with the folder that dsf-pack-engram wrote";
    return out.add(std::move(f));
  }
  out.add({Status::kNote, "not_packed",
           c.plan.model.string() + ": Engram rows come from the checkpoint's tables, two reads a row",
           "dsf-pack-engram halves the reads"});
  out.summary = "tables in the model folder";
}

void check_engram_content(Context& c, Outcome& out) {
  if (!c.layout) return Context::skip(out, "needs config.valid, or this model has no Engram tables");
  if (c.plan.engram.empty()) return Context::skip(out, "there are no packed files; dsf-verify proves the tables");
  const uint64_t seed = c.plan.sample_seed != 0 ? c.plan.sample_seed : static_cast<uint64_t>(unix_time_ms());
  std::mt19937_64 rng(seed);
  c.facts["engram_sample_seed"] = std::to_string(seed);
  const bool by_record = compare_with_record(c, out, seed);
  const bool by_tables = compare_with_tables(c, out, rng);
  if (!by_record && !by_tables && out.findings.empty())
    out.add({Status::kWarning, "unproven",
             c.plan.engram.string() + ": has no packing record, the content of the packed files is not proven",
             "run dsf-pack-engram --source RELEASE --check " + c.plan.engram.string()});
}

}  // namespace dsf::preflight
