#pragma once
// The journal beside a part file; its header names the file and its content. Source: hub.md 3.3.
//
//   H 1 {"path":...,"size":...,"digest":...,"piece":...} 1a2b3c4d
#include "dsf/codec/journal.h"

namespace dsf::fetch {
using codec::Journal;
}  // namespace dsf::fetch
