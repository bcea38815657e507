#pragma once
// Holding the source folder against a pin before anything is packed: the wrong revision often has tables of the same
// shape.
#include "tools/pack-engram/plan.h"

namespace dsf::pack_engram {

// Compares what is cheap: digests of configuration and index, sizes of the table shards, header digests where the pin
// has them, and the shard digests that dsf-fetch recorded. Whole shards are dsf-verify's work. Errors: kContent
// (another revision), kUsage (pin).
Result<void> check_against_pin(const Plan& plan, const Source& source);

}  // namespace dsf::pack_engram
