#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/header_text.h"

namespace dsf::safetensors {

std::string header_bytes(std::span<const TensorInfo> tensors,
                         std::span<const std::pair<std::string, std::string>> metadata) {
  json::Value header = json::Value::object();
  if (!metadata.empty()) {
    json::Value& m = header.set("__metadata__", json::Value::object());
    for (const auto& [key, value] : metadata) m.set(key, value);
  }
  for (const TensorInfo& t : tensors) {
    json::Value entry = json::Value::object();
    entry.set("dtype", tensor::dtype_name(t.dtype));
    entry.set("shape", json::Array(t.shape.begin(), t.shape.end()));
    entry.set("data_offsets", json::Array{t.begin, t.end});
    // Straight to the list: set() would search all earlier names for each new one.
    header.as_object().emplace_back(t.name, std::move(entry));
  }
  std::string text = json::dump(header);
  text.append(round_up<size_t>(text.size(), 8) - text.size(), ' ');
  std::string length(8, '\0');
  store_le<uint64_t>(length.data(), text.size());
  return length + text;
}

Result<void> write_file(const std::filesystem::path& path, std::span<const TensorData> tensors,
                        std::span<const std::pair<std::string, std::string>> metadata) {
  std::vector<TensorInfo> infos;
  uint64_t at = 0;
  for (const TensorData& t : tensors) {
    const auto elements = tensor::element_count(t.shape);
    DSF_CHECK(elements && static_cast<uint64_t>(*elements) * tensor::dtype_size(t.dtype) == t.bytes.size(),
              "bytes of a tensor match its shape");
    infos.push_back({t.name, t.dtype, t.shape, at, at + t.bytes.size()});
    at += t.bytes.size();
  }
  DSF_TRY(io::AtomicFile file, io::AtomicFile::create(path));
  DSF_OK(file.write(as_bytes(header_bytes(infos, metadata))));
  for (const TensorData& t : tensors) DSF_OK(file.write(t.bytes));
  return file.commit();
}

Result<void> write_index(const std::filesystem::path& path, std::span<const IndexEntry> entries, uint64_t total_size) {
  json::Value root = json::Value::object();
  root.set("metadata", json::Value::object()).set("total_size", total_size);
  json::Object map;
  for (const IndexEntry& e : entries) map.emplace_back(e.tensor, e.file);
  root.set("weight_map", std::move(map));
  return io::write_file_atomic(path, json::dump(root, json::Style::kPretty) + "\n");
}

}  // namespace dsf::safetensors
