#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "dsf/base/check.h"
#include "dsf/engram/rows.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::engram {
namespace {

namespace fs = std::filesystem;
constexpr const char* kIndexName = "model.safetensors.index.json";

// Finds tensors in a folder of which perhaps only the table shards are present: unlike safetensors::Checkpoint it never opens
// (nor requires) a shard that holds no table.
class Finder {
 public:
  static Result<Finder> open(const fs::path& dir) {
    Finder out;
    out.dir_ = dir;
    std::error_code ec;
    if (!fs::is_directory(dir, ec)) return fail(Code::kMissing, dir.string(), "no such folder", "pass the folder that holds the Engram tables", "missing");
    if (fs::exists(dir / kIndexName, ec)) {
      DSF_TRY(const std::string text, io::read_text(dir / kIndexName));
      DSF_TRY(out.index_, json::parse(text, (dir / kIndexName).string()));
      return out;
    }
    DSF_TRY(const auto files, io::list_files(dir));
    for (const std::string& f : files)
      if (f.ends_with(".safetensors") && f.find('/') == std::string::npos && !f.starts_with(".")) out.loose_.push_back(f);
    if (out.loose_.empty()) return fail(Code::kMissing, dir.string(), "no model.safetensors.index.json and no safetensors files", "pass the folder that holds the Engram tables", "missing");
    return out;
  }

  Result<TableFile> find(const std::string& name, tensor::DType dtype, const tensor::Shape& shape) {
    DSF_TRY(const std::string file, shard_of(name));
    DSF_TRY(const safetensors::Header* header, header_of(file));
    const safetensors::TensorInfo* info = header->find(name);
    const std::string subject = (dir_ / file).string();
    if (info == nullptr) return fail(Code::kMissing, subject, "does not hold " + name + ", the index says it does", "fetch the file again", "missing_tensor");
    if (info->dtype != dtype || info->shape != shape)
      return fail(Code::kContent, subject, name + " is " + std::string(tensor::dtype_name(info->dtype)) + " " + tensor::shape_text(info->shape) +
                  ", config.json needs " + std::string(tensor::dtype_name(dtype)) + " " + tensor::shape_text(shape), "use config.json and tables of one revision", "shape");
    DSF_TRY(io::Fd fd, io::open_read(dir_ / file));
    return TableFile{std::move(fd), header->data_offset + info->begin, name};
  }

 private:
  Result<std::string> shard_of(const std::string& name) {
    if (index_) {
      DSF_TRY(const json::Cursor map, json::Cursor(*index_, (dir_ / kIndexName).string()).at("weight_map"));
      const auto file = map.maybe(name);
      if (!file) return fail(Code::kMissing, (dir_ / kIndexName).string(), "does not name " + name, "pass the original release: EXL3 packs leave the tables out", "missing_tensor");
      DSF_TRY(const std::string shard, file->string());
      if (shard.empty() || shard.find('/') != std::string::npos || shard == "." || shard == "..") return file->fail("not a plain file name");
      return shard;
    }
    for (const std::string& f : loose_) {
      DSF_TRY(const safetensors::Header* header, header_of(f));
      if (header->find(name) != nullptr) return f;
    }
    return fail(Code::kMissing, dir_.string(), "no file here holds " + name, "pass the original release: EXL3 packs leave the tables out", "missing_tensor");
  }

  Result<const safetensors::Header*> header_of(const std::string& file) {
    auto it = headers_.find(file);
    if (it == headers_.end()) {
      auto header = safetensors::read_header(dir_ / file);
      if (!header) {
        Error e = std::move(header).error();
        if (e.code == Code::kMissing) e.fix = "fetch it";
        return fail(std::move(e));
      }
      it = headers_.emplace(file, std::move(*header)).first;
    }
    return &it->second;
  }

  fs::path dir_;
  std::optional<json::Value> index_;
  std::vector<std::string> loose_;  // without an index: every file of the folder
  std::map<std::string, safetensors::Header> headers_;
};

}  // namespace

Result<std::unique_ptr<CheckpointRows>> CheckpointRows::open(const fs::path& dir, Layout layout) {
  DSF_TRY(Finder finder, Finder::open(dir));
  std::vector<SourceTable> tables;
  for (const LayerConstants& layer : layout.layers()) {
    const std::string base = "layers." + std::to_string(layer.layer_id) + ".engram.embed.";
    DSF_TRY(TableFile weight, finder.find(base + "weight", tensor::DType::kF8E4M3, {layer.rows, layout.head_dim()}));
    DSF_TRY(TableFile scale, finder.find(base + "scale", tensor::DType::kF8E8M0, {layer.rows, layout.scale_bytes()}));
    tables.push_back({std::move(weight), std::move(scale)});
  }
  return std::unique_ptr<CheckpointRows>(new CheckpointRows(std::move(layout), std::move(tables)));
}

RowRange CheckpointRows::owned(size_t layer_index) const { return {0, layout_.layers().at(layer_index).rows}; }

Result<void> CheckpointRows::read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const {
  const auto row_bytes = static_cast<size_t>(layout_.row_bytes()), head_dim = static_cast<size_t>(layout_.head_dim());
  DSF_CHECK(out.size() == rows.size() * row_bytes, "out: [rows, row_bytes]");
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto record = out.subspan(i * row_bytes, row_bytes);
    DSF_OK(read_block(layer_index, rows[i], 1, record.first(head_dim), record.subspan(head_dim)));
  }
  return {};
}

Result<void> CheckpointRows::read_block(size_t layer_index, int64_t first, int64_t n, std::span<std::byte> weights, std::span<std::byte> scales) const {
  const SourceTable& table = tables_.at(layer_index);
  if (first < 0 || n < 0 || n > layout_.layers()[layer_index].rows - first)
    return fail(Code::kUsage, table.weight.tensor, "has no rows " + std::to_string(first) + " to " + std::to_string(first + n), {}, "row_not_owned");
  const auto head_dim = static_cast<uint64_t>(layout_.head_dim()), scale_bytes = static_cast<uint64_t>(layout_.scale_bytes());
  const auto row = static_cast<uint64_t>(first), count = static_cast<uint64_t>(n);
  DSF_CHECK(weights.size() == count * head_dim && scales.size() == count * scale_bytes, "n rows of weights and scales");
  DSF_OK(io::read_at(table.weight.fd, table.weight.offset + row * head_dim, weights));
  return io::read_at(table.scale.fd, table.scale.offset + row * scale_bytes, scales);
}

std::vector<fs::path> CheckpointRows::files() const {
  std::vector<fs::path> out;
  for (const SourceTable& t : tables_)
    for (const TableFile* f : {&t.weight, &t.scale})
      if (std::find(out.begin(), out.end(), f->fd.path()) == out.end()) out.push_back(f->fd.path());
  return out;
}

std::vector<std::pair<std::string, std::string>> CheckpointRows::identity() const {
  std::string names;
  for (const fs::path& f : files()) names += (names.empty() ? "" : ", ") + f.filename().string();
  return {{"engram", "checkpoint"}, {"engram_files", names}};
}

}  // namespace dsf::engram
