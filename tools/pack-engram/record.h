#pragma once
// The record beside the packed files: engram-r{rank}of{world}.json, schema "engram-pack". It carries the digests of what was read
// and of every packed block, so that later checks need no source. Source: conventions.md 1, engram.md 7.3.
#include "dsf/json/json.h"
#include "dsf/manifest/record.h"
#include "tools/pack-engram/digests.h"
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

inline constexpr std::string_view kRecordSchema = "engram-pack";

std::string record_name(int rank, int world);
// One document for these outcomes; with digests when it is to be a record, without when it is a check's report.
manifest::Record make_record(const Plan& plan, const Source* source, const std::vector<Outcome>& outcomes, const std::vector<Error>& errors);
// The files that the record in plan.packs describes for this rank. Errors: kMissing, kContent.
Result<std::vector<RecordedFile>> load_recorded(const Plan& plan, int rank);

}  // namespace dsf::pack_engram
