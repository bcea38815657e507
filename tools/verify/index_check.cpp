#include "tools/verify/index_check.h"

#include <algorithm>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/manifest/path.h"

namespace dsf::verify {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr size_t kMaxSame = 5;  // findings of one kind that are spelled out; the rest is counted

class IndexChecker {
 public:
  IndexChecker(const Plan& plan, std::string index, const Structures& structures,
               const std::function<bool(const std::string&)>& expected_here)
      : plan_(plan), index_(std::move(index)), structures_(structures), expected_here_(expected_here) {
    const size_t slash = index_.rfind('/');
    if (slash != std::string::npos) folder_ = index_.substr(0, slash + 1);
  }

  std::vector<Finding> run(std::string_view text) {
    if (!read(text)) return finish();
    check_shards_exist();
    check_tensors_in_shards();
    check_unlisted_tensors();
    check_duplicates();
    check_total_size();
    check_numbering();
    check_strays();
    return finish();
  }

 private:
  void add(const char* code, Severity s, const std::string& text) {
    if (++seen_[code] <= kMaxSame) findings_.push_back({code, s, text});
  }
  std::vector<Finding> finish() {
    for (const auto& [code, n] : seen_)
      if (n > kMaxSame)
        findings_.push_back({code, Severity::kNote, "and " + std::to_string(n - kMaxSame) + " more of this kind"});
    return std::move(findings_);
  }

  bool read(std::string_view text) {
    auto root = json::parse(text, "index");
    if (!root)
      return add("IX01", Severity::kError, "is not strict JSON: " + root.error().what + "; fetch it again"), false;
    const json::Value* map = root->find("weight_map");
    if (map == nullptr || !map->is_object())
      return add("IX01", Severity::kError, "has no weight_map object; fetch it again"), false;
    for (const auto& [tensor, shard] : map->as_object()) {
      if (!shard.is_string())
        return add("IX01", Severity::kError, "weight_map." + tensor + " is not a string; fetch it again"), false;
      const std::string& name = shard.as_string();
      if (!manifest::path_problem(name).empty() || name.find('/') != std::string::npos) {
        add("IX02", Severity::kError, "names the shard " + json::quote(name) + ", which is not a plain file name");
        continue;
      }
      map_.emplace(tensor, name);
      shards_.insert(name);
    }
    if (const json::Value* metadata = root->find("metadata"))
      if (const json::Value* total = metadata->find("total_size")) total_size_ = total->to_u64();
    return true;
  }

  const Structure* structure_of(const std::string& shard) const {
    const auto it = structures_.find(folder_ + shard);
    return it == structures_.end() ? nullptr : &it->second;
  }

  void check_shards_exist() {
    for (const std::string& shard : shards_) {
      if (structure_of(shard) != nullptr) continue;
      std::error_code ec;
      if (std::filesystem::exists(plan_.dir / (folder_ + shard), ec)) continue;  // there, but not a safetensors file
      const bool optional = plan_.partial && !expected_here_(folder_ + shard);
      add("IX03", optional ? Severity::kNote : Severity::kError,
          "names " + shard + ", which is missing" +
              (optional ? "" : "; fetch it, or pass --partial if it is not wanted here"));
    }
  }

  void check_tensors_in_shards() {
    std::map<std::string, std::set<std::string_view>> held;
    for (const std::string& shard : shards_)
      if (const Structure* s = structure_of(shard))
        for (const Tensor& t : s->tensors) held[shard].insert(t.name);
    for (const auto& [tensor, shard] : map_)
      if (structure_of(shard) != nullptr && !held[shard].contains(tensor))
        add("IX04", Severity::kError,
            "places " + tensor + " in " + shard + ", which does not hold it; fetch both again");
  }

  void check_unlisted_tensors() {
    for (const std::string& shard : shards_) {
      const Structure* s = structure_of(shard);
      if (s == nullptr) continue;
      for (const Tensor& t : s->tensors) {
        const auto it = map_.find(t.name);
        if (it == map_.end() || it->second != shard)
          add("IX05", plan_.strict ? Severity::kError : Severity::kWarning,
              "does not list " + t.name + ", which " + shard + " holds");
      }
    }
  }

  void check_duplicates() {
    std::map<std::string_view, std::string> owner;
    for (const auto& [path, s] : structures_) {
      if (!path.starts_with(folder_) || path.find('/', folder_.size()) != std::string::npos) continue;
      const std::string shard = path.substr(folder_.size());
      for (const Tensor& t : s.tensors) {
        const auto [it, fresh] = owner.emplace(t.name, shard);
        if (fresh) continue;
        const bool both = shards_.contains(it->second) && shards_.contains(shard);
        add("IX06", both ? Severity::kError : Severity::kWarning,
            "tensor " + t.name + " stands in " + it->second + " and in " + shard + (both ? "; fetch both again" : ""));
      }
    }
  }

  void check_total_size() {
    if (!total_size_) return;
    uint64_t sum = 0;
    for (const std::string& shard : shards_) {
      const Structure* s = structure_of(shard);
      if (s == nullptr) return;  // cannot be known with a shard missing
      for (const Tensor& t : s->tensors)
        if (const auto it = map_.find(t.name); it != map_.end() && it->second == shard) sum += t.end - t.begin;
    }
    if (sum != *total_size_)
      add("IX07", Severity::kWarning,
          "metadata.total_size is " + std::to_string(*total_size_) + ", the tensors have " + std::to_string(sum) +
              " bytes");
  }

  // prefix-00001-of-00048.safetensors: all numbers of a set, and one count per prefix.
  void check_numbering() {
    std::map<std::string, std::map<uint64_t, std::set<uint64_t>>> sets;  // prefix -> N -> numbers
    for (const std::string& shard : shards_) {
      const size_t of = shard.rfind("-of-"), dash = of == std::string::npos ? of : shard.rfind('-', of - 1),
                   dot = shard.rfind('.');
      if (of == std::string::npos || dash == std::string::npos || dot == std::string::npos || dot < of + 4) continue;
      const auto number = parse_u64(std::string_view(shard).substr(dash + 1, of - dash - 1)),
                 total = parse_u64(std::string_view(shard).substr(of + 4, dot - of - 4));
      if (number && total && *total <= 100000) sets[shard.substr(0, dash)][*total].insert(*number);
    }
    for (const auto& [prefix, totals] : sets) {
      if (totals.size() > 1)
        add("IX08", Severity::kError,
            "shards of " + prefix + " come from sets of different size; fetch the folder again");
      for (const auto& [n, numbers] : totals)
        if (numbers.size() != n)
          add("IX08", plan_.partial ? Severity::kNote : Severity::kWarning,
              "names " + std::to_string(numbers.size()) + " of " + std::to_string(n) + " numbered shards of " + prefix);
    }
  }

  void check_strays() {
    for (const auto& [path, s] : structures_)
      if (path.starts_with(folder_) && path.find('/', folder_.size()) == std::string::npos &&
          !shards_.contains(path.substr(folder_.size())))
        add("IX09", Severity::kWarning,
            "does not name " + path.substr(folder_.size()) + ": loaders that read every file would merge it");
  }

  const Plan& plan_;
  std::string index_, folder_;
  const Structures& structures_;
  const std::function<bool(const std::string&)>& expected_here_;
  std::map<std::string, std::string> map_;
  std::set<std::string> shards_;
  std::optional<uint64_t> total_size_;
  std::map<std::string, size_t> seen_;
  std::vector<Finding> findings_;
};

}  // namespace

Result<std::vector<Finding>> check_index(const Plan& plan, const std::string& index, const Structures& structures,
                                         const std::function<bool(const std::string&)>& expected_here) {
  auto text = io::read_text(plan.dir / index, kMaxIndexBytes);
  if (!text) {
    if (text.error().code != Code::kContent) return fail(std::move(text).error());
    return std::vector<Finding>{{"IX01", Severity::kError, text.error().what}};
  }
  return IndexChecker(plan, index, structures, expected_here).run(*text);
}

}  // namespace dsf::verify
