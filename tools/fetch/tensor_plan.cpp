#include "tools/fetch/tensor_plan.h"

#include <algorithm>
#include <functional>
#include <regex>
#include <set>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/json/json.h"
#include "tools/fetch/parallel.h"

namespace dsf::fetch {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = 256 * kMiB;
constexpr uint64_t kFirstRead = 128 * kKiB;  // nearly every header fits

// Says whether a tensor is wanted, and which names and patterns never matched.
class Matcher {
 public:
  static Result<Matcher> make(const TensorSelection& s) {
    Matcher m;
    m.names_.insert(s.names.begin(), s.names.end());
    for (const RowRange& r : s.rows) m.names_.insert(r.tensor);
    for (const std::string& text : s.regexes) {
      try {
        m.patterns_.push_back({text, std::regex(text, std::regex::ECMAScript | std::regex::optimize)});
      } catch (const std::regex_error& e) {
        return fail(Code::kUsage, text, std::string("is not a regular expression: ") + e.what(), "see ECMAScript");
      }
    }
    if (m.names_.empty() && m.patterns_.empty())
      return fail(Code::kUsage, "tensors", "no tensor is named", "give --name, --regex or --rows");
    return m;
  }
  bool takes(const std::string& name) {
    bool found = names_.contains(name);
    if (found) met_.insert(name);
    for (auto& [text, pattern] : patterns_) {
      if (!std::regex_search(name, pattern)) continue;
      met_.insert(text);
      found = true;
    }
    return found;
  }
  Result<void> all_met(const std::string& repo) const {
    const auto missing = [&](const std::string& text) {
      return fail(Code::kMissing, manifest::printable(text), "matches no tensor of " + repo,
                  "look into the repository's " + std::string(kIndexName), "tensor");
    };
    for (const std::string& n : names_) {
      if (!met_.contains(n)) return missing(n);
    }
    for (const auto& [text, pattern] : patterns_) {
      if (!met_.contains(text)) return missing(text);
    }
    return {};
  }

 private:
  std::set<std::string> names_, met_;
  std::vector<std::pair<std::string, std::regex>> patterns_;
};

// The shards that the index says hold wanted tensors; nullopt when the repository has no index.
Result<std::optional<std::set<std::string>>> shards_by_index(const Planned& p, Matcher& matcher, hub::Hub& hub) {
  const auto index = std::find_if(p.plan.wanted.begin(), p.plan.wanted.end(),
                                  [](const Wanted& w) { return w.entry.path == kIndexName; });
  if (index == p.plan.wanted.end()) return std::optional<std::set<std::string>>();
  DSF_TRY(const std::string text, hub.read_file(p.plan.repo, p.plan.commit, index->entry, kMaxIndexBytes));
  DSF_OK(compare(*index, codec::sha256(text).hex(), codec::git_blob_sha1(as_bytes(text)), index->entry.path));
  DSF_TRY(const json::Value value, json::parse(text, kIndexName, {.max_depth = 16}));
  DSF_TRY(const json::Cursor map, json::Cursor(value, std::string(kIndexName)).at("weight_map"));
  if (!map.value().is_object()) return map.fail("object expected");
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map.value().as_object()) {
    if (!shard.is_string()) return map.fail("file name expected for " + manifest::printable(tensor));
    if (matcher.takes(tensor)) shards.insert(shard.as_string());
  }
  return std::optional(std::move(shards));
}

Result<void> add_shards(const Planned& p, const std::optional<std::set<std::string>>& by_index, TensorPlan& out) {
  std::set<std::string> left = by_index.value_or(std::set<std::string>());
  for (const Wanted& w : p.plan.wanted) {
    const std::string& path = w.entry.path;
    if (!path.ends_with(".safetensors") || (by_index && left.erase(path) == 0)) continue;
    out.shards.push_back(
        std::make_unique<Shard>(p.plan.repo, p.plan.commit, w.entry, p.pin ? p.pin->find(path) : nullptr));
  }
  if (left.empty()) return {};
  return fail(Code::kMissing, manifest::printable(*left.begin()), "is named by the index but is not in " + p.plan.repo,
              "report it to the repository's owner", "entry");
}

// Steps 3 and 4 of hub.md 6.1.
Result<void> read_header(Shard& s, hub::Hub& hub) {
  const uint64_t size = s.entry.size;
  std::string bytes;
  const auto append = [&](std::span<const std::byte> b) {
    bytes += as_text(b);
    return true;
  };
  DSF_OK(hub.read(s.source, 0, std::min(size, kFirstRead), append));
  if (bytes.size() < 8) return fail(Code::kContent, s.entry.path, "is too short for a safetensors file", "", "header");
  const uint64_t n = load_le<uint64_t>(bytes.data());
  if (n <= safetensors::kMaxHeaderBytes && 8 + n <= size && 8 + n > bytes.size())
    DSF_OK(hub.read(s.source, bytes.size(), 8 + n, append));
  DSF_TRY(s.header, safetensors::parse_header(as_bytes(bytes), size, s.entry.path));
  bytes.resize(static_cast<size_t>(s.header.data_offset));
  s.header_sha256 = codec::sha256(bytes).hex();
  s.header_bytes = std::move(bytes);
  if (s.pinned == nullptr || !s.pinned->safetensors || s.pinned->safetensors->header_sha256.empty()) return {};
  if (s.pinned->safetensors->header_sha256 != s.header_sha256) {
    return fail(Code::kContent, s.entry.path, "the header's sha256 differs from the pin (ST12)",
                "check the pin against the repository", "digest_mismatch");
  }
  s.header_pinned = true;
  return {};
}

Result<void> take_rows(const RowRange& r, PickedTensor& t) {
  const auto wrong = [&](const std::string& why) {
    return fail(Code::kUsage, "--rows " + manifest::printable(r.tensor), why,
                "the tensor is " + tensor::shape_text(t.info.shape));
  };
  if (t.info.shape.empty() || t.info.shape[0] <= 0) return wrong("the tensor has no rows");
  const auto rows = static_cast<uint64_t>(t.info.shape[0]);
  if (r.begin >= r.end || r.end > rows) return wrong("rows outside the tensor");
  if (t.info.n_bytes() % rows != 0) return wrong("a row is no whole number of bytes");
  const uint64_t row_bytes = t.info.n_bytes() / rows;
  t.end = t.begin + r.end * row_bytes;
  t.begin += r.begin * row_bytes;
  t.rows = std::to_string(r.begin) + ":" + std::to_string(r.end);
  t.info.shape[0] = static_cast<int64_t>(r.end - r.begin);
  return {};
}

std::string pinned_digest(const Shard& s, const safetensors::TensorInfo& info) {
  if (s.pinned == nullptr) return {};
  for (const manifest::PinnedTensor& t : s.pinned->tensors) {
    if (t.name == info.name && t.begin == info.begin && t.end == info.end) return t.sha256;
  }
  return {};
}

Result<void> pick(TensorPlan& plan, const TensorSelection& selection, Matcher& matcher) {
  for (const auto& shard : plan.shards) {
    for (const safetensors::TensorInfo& info : shard->header.tensors) {
      if (!matcher.takes(info.name)) continue;
      PickedTensor t;
      t.shard = shard.get();
      t.info = info;
      t.begin = shard->header.data_offset + info.begin;
      t.end = shard->header.data_offset + info.end;
      t.pinned_sha256 = pinned_digest(*shard, info);
      for (const RowRange& r : selection.rows) {
        if (r.tensor == info.name) DSF_OK(take_rows(r, t));
      }
      plan.tensors.push_back(std::move(t));
    }
  }
  std::set<std::string_view> seen;
  for (const PickedTensor& t : plan.tensors) {
    if (!seen.insert(t.info.name).second) {
      return fail(Code::kContent, manifest::printable(t.info.name), "stands in two shards",
                  "name one pin, or report it to the repository's owner", "duplicate");
    }
  }
  return {};
}

}  // namespace

Result<RowRange> parse_rows(const std::string& text) {
  const size_t equal = text.rfind('='), colon = text.rfind(':');
  if (equal != std::string::npos && colon != std::string::npos && colon > equal && equal > 0) {
    const auto a = parse_u64(std::string_view(text).substr(equal + 1, colon - equal - 1));
    const auto b = parse_u64(std::string_view(text).substr(colon + 1));
    if (a && b && *a < *b) return RowRange{text.substr(0, equal), *a, *b};
  }
  return fail(Code::kUsage, "--rows", "'" + manifest::printable(text) + "' is not understood",
              "write NAME=first:end, for example embed.weight=0:1024");
}

Result<TensorPlan> plan_tensors(const SourceOptions& source, const TensorSelection& selection,
                                const std::shared_ptr<hub::Shared>& shared, int jobs) {
  DSF_TRY(Matcher matcher, Matcher::make(selection));
  TensorPlan plan;
  DSF_TRY(plan.plans, make_plans(source, shared));
  std::string repos;
  hub::Hub hub(shared);
  for (const Planned& p : plan.plans) {
    DSF_TRY(const auto shards, shards_by_index(p, matcher, hub));
    DSF_OK(add_shards(p, shards, plan));
    repos += (repos.empty() ? "" : ", ") + p.plan.repo;
  }
  DSF_OK(for_each_with_hub(plan.shards.size(), jobs, shared,
                           [&](hub::Hub& h, size_t i) { return read_header(*plan.shards[i], h); }));
  DSF_OK(pick(plan, selection, matcher));
  DSF_OK(matcher.all_met(repos));
  // A name of the index that its shard does not hold.
  for (const std::string& name : selection.names) {
    if (std::none_of(plan.tensors.begin(), plan.tensors.end(), [&](const auto& t) { return t.info.name == name; }))
      return fail(Code::kContent, manifest::printable(name), "is in the index but not in its shard (IX04)",
                  "report it to the repository's owner", "index");
  }
  return plan;
}

}  // namespace dsf::fetch
