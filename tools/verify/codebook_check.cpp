#include "tools/verify/codebook_check.h"

#include "dsf/io/file.h"
#include "dsf/model/tensor_table.h"

namespace dsf::verify {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// What config.json in this folder declares; a config that cannot be read declares nothing here.
std::string declared_in(const std::filesystem::path& folder) {
  const auto text = io::read_text(folder / "config.json", kMaxConfigBytes);
  if (!text) return "";
  const auto declared = model::declared_codebook(*text, "config.json");
  return declared ? *declared : "";
}

}  // namespace

std::vector<std::pair<std::string, Finding>> check_codebooks(const Plan& plan, const Structures& structures) {
  std::map<std::string, std::vector<std::string>> by_folder;                   // tensors
  std::map<std::string, std::map<std::string, std::string>> shard_of_trellis;  // folder, tensor -> path
  for (const auto& [path, s] : structures) {
    const std::string folder = path.substr(0, path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    for (const Tensor& t : s.tensors) {
      by_folder[folder].push_back(t.name);
      if (t.name.ends_with(".trellis")) shard_of_trellis[folder][t.name] = path;
    }
  }
  std::vector<std::pair<std::string, Finding>> out;
  for (const auto& [folder, names] : by_folder) {
    const auto codebook = model::pack_codebook(names, declared_in(plan.dir / folder));
    if (codebook) continue;
    const Error& e = codebook.error();
    out.emplace_back(shard_of_trellis[folder][e.subject + ".trellis"],
                     Finding{"QC01", Severity::kError, e.subject + " " + e.what + "; " + e.fix});
  }
  return out;
}

}  // namespace dsf::verify
