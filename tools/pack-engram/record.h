#pragma once
// The document of a run: the record beside the packed files, or the report of a check. Its reader is
// dsf/engram/pack_record.h.
#include "dsf/json/json.h"
#include "dsf/manifest/record.h"
#include "tools/pack-engram/plan.h"
#include "tools/pack-engram/recombine.h"

namespace dsf::pack_engram {

manifest::Record make_record(const Plan& plan, const Source* source, const std::vector<Outcome>& outcomes,
                             const std::vector<Error>& errors);
// Of a --recombine run.
manifest::Record make_record(const Plan& plan, const std::vector<LayerDigest>& digests);

}  // namespace dsf::pack_engram
