#pragma once
// Agreement of a *.index.json with its shards. Source: hub.md 5.3.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/verify/report.h"
#include "tools/verify/structure.h"

namespace dsf::verify {

using Structures = std::map<std::string, Structure>;  // by path relative to the folder

// index: path relative to the folder. Findings belong to the index file. expected_here(path): should this shard be in
// the folder?
Result<std::vector<Finding>> check_index(const Plan& plan, const std::string& index, const Structures& structures,
                                         const std::function<bool(const std::string&)>& expected_here);

}  // namespace dsf::verify
