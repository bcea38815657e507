#include <algorithm>
#include <set>

#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::safetensors {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
using WeightMap = std::map<std::string, std::string>;  // tensor -> shard

Result<WeightMap> read_weight_map(const std::filesystem::path& path) {
  DSF_TRY(const std::string text, io::read_text(path));
  DSF_TRY(const json::Value root, json::parse(text, path.string()));
  DSF_TRY(const json::Cursor map, json::Cursor(root, path.string()).at("weight_map"));
  if (!map.value().is_object()) return map.fail("object expected");
  WeightMap out;
  for (const auto& [tensor, file] : map.value().as_object()) {
    if (!file.is_string()) return map.fail(tensor + ": shard name expected");
    const std::string& name = file.as_string();
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
      return map.fail(tensor + ": shard name " + json::quote(name) + " is not a plain file name");
    out.emplace(tensor, name);
  }
  return out;
}

// Shards in the order of their names: the index's when there is one, else every *.safetensors of the folder.
Result<std::vector<std::string>> shard_names(const std::filesystem::path& dir, const std::optional<WeightMap>& index) {
  std::set<std::string> names;
  if (index) {
    for (const auto& [tensor, file] : *index) names.insert(file);
  } else {
    DSF_TRY(const auto files, io::list_files(dir));
    for (const std::string& f : files)
      if (f.ends_with(".safetensors") && f.find('/') == std::string::npos && !f.starts_with(".")) names.insert(f);
  }
  if (names.empty())
    return fail(Code::kMissing, dir.string(), "no safetensors files here", "pass the folder of the checkpoint", "missing");
  return std::vector<std::string>(names.begin(), names.end());
}

Result<void> check_index(const WeightMap& index, const std::filesystem::path& dir, const std::vector<File>& files,
                         const std::map<std::string, std::pair<size_t, size_t>, std::less<>>& where) {
  const std::string subject = (dir / kIndexName).string();
  for (const auto& [tensor, shard] : index) {
    const auto it = where.find(tensor);
    if (it == where.end()) return fail(Code::kContent, subject, "names tensor " + tensor + ", which " + shard + " does not hold", "fetch the folder again", "index");
    if (files[it->second.first].path().filename() != shard)
      return fail(Code::kContent, subject, "places tensor " + tensor + " in " + shard + ", it is in " + files[it->second.first].path().filename().string(), "fetch the folder again", "index");
  }
  for (const File& f : files) {
    if (f.path().parent_path() != dir) continue;
    for (const TensorInfo& t : f.header().tensors)
      if (!index.contains(t.name))
        return fail(Code::kContent, subject, "does not name tensor " + t.name + " of " + f.path().filename().string(), "fetch the folder again", "index");
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& dir) {
  Checkpoint out;
  out.dir_ = dir;
  DSF_OK(out.add(dir));
  return out;
}

Result<void> Checkpoint::add(const std::filesystem::path& dir) {
  std::error_code ec;
  if (!std::filesystem::is_directory(dir, ec)) return fail(Code::kMissing, dir.string(), "no such folder", "pass the folder of the checkpoint", "missing");
  std::optional<WeightMap> index;
  if (std::filesystem::exists(dir / kIndexName, ec)) {
    DSF_TRY(index, read_weight_map(dir / kIndexName));
  }
  DSF_TRY(const auto shards, shard_names(dir, index));
  for (const std::string& shard : shards) {
    if (!std::filesystem::exists(dir / shard, ec))
      return fail(Code::kMissing, (dir / shard).string(), "the index names this shard, it is not here", "fetch it", "missing_shard");
    DSF_TRY(File file, File::open(dir / shard));
    for (size_t i = 0; i < file.header().tensors.size(); ++i) {
      const std::string& name = file.header().tensors[i].name;
      if (const auto [it, fresh] = where_.emplace(name, std::pair(files_.size(), i)); !fresh)
        return fail(Code::kContent, file.path().string(), "tensor " + name + " is also in " + files_[it->second.first].path().string(), "fetch the folder again", "duplicate_tensor");
    }
    files_.push_back(std::move(file));
  }
  return index ? check_index(*index, dir, files_, where_) : Result<void>{};
}

bool Checkpoint::contains(std::string_view name) const { return where_.find(name) != where_.end(); }

Result<TensorView> Checkpoint::tensor(std::string_view name) const {
  const auto it = where_.find(name);
  if (it == where_.end()) return fail(Code::kMissing, dir_.string(), "no tensor " + std::string(name), "fetch the whole checkpoint", "missing_tensor");
  const File& file = files_[it->second.first];
  const TensorInfo& info = file.header().tensors[it->second.second];
  return TensorView{&info, file.mapping().bytes().subspan(file.header().data_offset + info.begin, info.n_bytes())};
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> out;
  out.reserve(where_.size());
  for (const auto& [name, place] : where_) out.push_back(name);
  return out;
}

const File* Checkpoint::file_of(std::string_view name) const {
  const auto it = where_.find(name);
  return it == where_.end() ? nullptr : &files_[it->second.first];
}

}  // namespace dsf::safetensors
