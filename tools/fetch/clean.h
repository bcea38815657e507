#pragma once
// `dsf-fetch clean`: what interrupted runs left in a folder. Source: hub.md 3.16.
#include <filesystem>

#include "tools/fetch/events.h"

namespace dsf::fetch {

struct CleanOptions {
  std::filesystem::path dir;
  bool yes = false;    // remove; otherwise only list
  bool state = false;  // also the record and all other bookkeeping of this tool: before a folder is uploaded
  bool quiet = false;
};
// Parts and journals of ours, and the public client's *.incomplete that are older than a day. kBusy while a run is in
// the folder.
Result<int> run_clean(const CleanOptions& options, Events& events);

}  // namespace dsf::fetch
