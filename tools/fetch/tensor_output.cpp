#include "tools/fetch/tensor_output.h"

#include <map>
#include <set>

#include "dsf/codec/sha256.h"
#include "dsf/http/client.h"
#include "dsf/safetensors/header_text.h"

namespace dsf::fetch {
namespace {

using Metadata = std::vector<std::pair<std::string, std::string>>;

// Where the bytes came from, for whoever meets the file without its record.
Metadata metadata_of(const TensorPlan& plan) {
  std::set<std::string> repos, revisions, files, digests, headers;
  Metadata rows;
  for (const PickedTensor& t : plan.tensors) {
    repos.insert(t.shard->source.repo());
    revisions.insert(t.shard->source.commit());
    files.insert(t.shard->entry.path);
    digests.insert(t.shard->entry.sha256);
    headers.insert(t.shard->header_sha256);
    if (!t.rows.empty()) rows.emplace_back("row_range:" + t.info.name, t.rows);
  }
  const auto joined = [](const std::set<std::string>& s) {
    std::string out;
    for (const std::string& x : s) out += (out.empty() ? "" : ",") + x;
    return out;
  };
  Metadata out = {{"source_repo", joined(repos)},
                  {"source_revision", joined(revisions)},
                  {"source_file", joined(files)},
                  {"source_sha256", joined(digests)},
                  {"source_header_sha256", joined(headers)}};
  out.insert(out.end(), rows.begin(), rows.end());
  return out;
}

void one_safetensors(const TensorPlan& plan, const std::filesystem::path& path, OutputPlan& out) {
  std::vector<safetensors::TensorInfo> infos;
  uint64_t at = 0;
  for (const PickedTensor& t : plan.tensors) {
    infos.push_back({t.info.name, t.info.dtype, t.info.shape, at, at + t.end - t.begin});
    at += t.end - t.begin;
  }
  OutputFile file{path, 0, safetensors::header_bytes(infos, metadata_of(plan))};
  file.size = file.prefix.size() + at;
  for (size_t i = 0; i < infos.size(); ++i)
    out.tensors.push_back({&plan.tensors[i], 0, file.prefix.size() + infos[i].begin});
  out.files.push_back(std::move(file));
  out.record = path.string() + ".record.json";
  out.journal = path.string() + ".journal";
}

void one_file_each(const TensorPlan& plan, const std::filesystem::path& dir, OutputPlan& out) {
  for (const PickedTensor& t : plan.tensors) {
    out.tensors.push_back({&t, out.files.size(), 0});
    out.files.push_back({dir / (http::percent_encode(t.info.name) + ".bin"), t.end - t.begin, {}});
  }
}

void sparse_shards(const TensorPlan& plan, const std::filesystem::path& dir, OutputPlan& out) {
  std::map<const Shard*, size_t> where;
  for (const PickedTensor& t : plan.tensors) {
    const auto [it, fresh] = where.emplace(t.shard, out.files.size());
    if (fresh)
      out.files.push_back({dir / (t.shard->entry.path + ".sparse"), t.shard->entry.size, t.shard->header_bytes});
    out.tensors.push_back({&t, it->second, t.begin});
  }
}

}  // namespace

Result<OutputPlan> plan_outputs(const TensorPlan& plan, const TensorsOptions& o) {
  const int chosen = (o.out.empty() ? 0 : 1) + (o.raw_dir.empty() ? 0 : 1) + (o.sparse_dir.empty() ? 0 : 1);
  if (chosen != 1) {
    return fail(Code::kUsage, "tensors", "needs one place for its result",
                "give one of --out FILE, --raw DIR and --sparse DIR");
  }
  OutputPlan out;
  if (!o.out.empty()) {
    one_safetensors(plan, o.out, out);
  } else {
    const auto& dir = o.raw_dir.empty() ? o.sparse_dir : o.raw_dir;
    o.raw_dir.empty() ? sparse_shards(plan, dir, out) : one_file_each(plan, dir, out);
    out.record = dir / "tensors.json";
    out.journal = dir / ".tensors.journal";
  }
  std::string text;
  for (const PlacedTensor& t : out.tensors) {
    text += t.tensor->shard->source.repo() + " " + t.tensor->shard->entry.path + " " + t.tensor->shard->entry.sha256 +
            " " + std::to_string(t.tensor->begin) + " " + std::to_string(t.tensor->end) + " " +
            out.files[t.output].path.filename().string() + " " + std::to_string(t.at) + "\n";
  }
  for (const OutputFile& f : out.files) text += codec::sha256(f.prefix).hex() + " " + std::to_string(f.size) + "\n";
  out.identity = codec::sha256(text).hex();
  return out;
}

std::vector<Segment> segments_of(const TensorPlan& plan, const OutputPlan& outputs) {
  std::vector<Segment> out;
  for (const auto& shard : plan.shards) {
    for (const PlacedTensor& t : outputs.tensors) {
      if (t.tensor->shard == shard.get())
        out.push_back({&shard->source, t.tensor->begin, t.tensor->end, t.output, t.at});
    }
  }
  return out;
}

}  // namespace dsf::fetch
