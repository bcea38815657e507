#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::safetensors {
namespace {

Unexpected malformed(std::string_view subject, std::string what) {
  return fail(Code::kContent, std::string(subject), std::move(what), "fetch it again", "safetensors");
}

Result<TensorInfo> parse_entry(const std::string& name, const json::Value& value, std::string_view subject) {
  const auto bad = [&](const std::string& what) { return malformed(subject, "tensor " + name + ": " + what); };
  const json::Value* dtype = value.find("dtype");
  const json::Value* shape = value.find("shape");
  const json::Value* offsets = value.find("data_offsets");
  if (dtype == nullptr || !dtype->is_string()) return bad("no dtype");
  if (shape == nullptr || !shape->is_array()) return bad("no shape");
  if (offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2) return bad("no data_offsets pair");

  TensorInfo info;
  info.name = name;
  const auto type = tensor::dtype_from_name(dtype->as_string());
  if (!type) return bad("unknown dtype " + json::quote(dtype->as_string()));
  info.dtype = *type;
  for (const json::Value& d : shape->as_array()) {
    const auto n = d.to_i64();
    if (!n || *n < 0) return bad("shape holds something other than sizes");
    info.shape.push_back(*n);
  }
  const auto begin = offsets->as_array()[0].to_u64(), end = offsets->as_array()[1].to_u64();
  if (!begin || !end || *end < *begin) return bad("data_offsets are not an ascending pair");
  info.begin = *begin;
  info.end = *end;

  const auto elements = tensor::element_count(info.shape);
  const auto bytes = elements ? checked_mul(static_cast<uint64_t>(*elements), uint64_t{tensor::dtype_size(info.dtype)}) : std::nullopt;
  if (!bytes) return bad("shape " + tensor::shape_text(info.shape) + " overflows");
  if (*bytes != info.n_bytes())
    return bad("shape " + tensor::shape_text(info.shape) + " of " + std::string(tensor::dtype_name(info.dtype)) + " needs " +
               std::to_string(*bytes) + " bytes, data_offsets give " + std::to_string(info.n_bytes()));
  return info;
}

Result<void> parse_metadata(const json::Value& value, std::string_view subject, Header& out) {
  if (!value.is_object()) return malformed(subject, "__metadata__ is not an object");
  for (const auto& [key, text] : value.as_object()) {
    if (!text.is_string()) return malformed(subject, "__metadata__." + key + " is not a string");
    out.metadata.emplace_back(key, text.as_string());
  }
  return {};
}

// The data section is covered exactly once: no hole, no overlap, nothing after the last tensor.
Result<void> check_layout(Header& header, std::string_view subject) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const TensorInfo& t : header.tensors) {
    if (t.begin != at)
      return malformed(subject, "tensor " + t.name + (t.begin < at ? " overlaps the one before it" : " leaves a hole before it") +
                       " (begins at " + std::to_string(t.begin) + ", expected " + std::to_string(at) + ")");
    at = t.end;
  }
  if (at < header.data_bytes)
    return malformed(subject, std::to_string(header.data_bytes - at) + " bytes after the last tensor");
  if (at > header.data_bytes)
    return malformed(subject, "truncated: tensors need " + std::to_string(at) + " data bytes, the file has " + std::to_string(header.data_bytes));
  return {};
}

Result<uint64_t> header_length(std::span<const std::byte> prefix, uint64_t file_bytes, std::string_view subject) {
  if (file_bytes < 8 || prefix.size() < 8) return malformed(subject, "too short for a safetensors file (" + std::to_string(file_bytes) + " bytes)");
  const auto length = load_le<uint64_t>(prefix.data());
  if (length > kMaxHeaderBytes) return malformed(subject, "header length " + std::to_string(length) + " is beyond the format's limit");
  if (length > file_bytes - 8)
    return malformed(subject, "header length " + std::to_string(length) + " is beyond the file (" + std::to_string(file_bytes) + " bytes)");
  return length;
}

}  // namespace

const TensorInfo* Header::find(std::string_view name) const {
  const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& t) { return t.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

Result<Header> parse_header(std::span<const std::byte> prefix, uint64_t file_bytes, std::string_view subject) {
  DSF_TRY(const uint64_t length, header_length(prefix, file_bytes, subject));
  if (prefix.size() < 8 + length) return malformed(subject, "header is cut");
  const std::string_view text = as_text(prefix.subspan(8, length));
  if (!text.starts_with("{")) return malformed(subject, "header does not begin with '{'");
  DSF_TRY(const json::Value root, json::parse(text, subject, {.max_depth = 8, .reject_duplicate_keys = true}));

  Header out;
  out.data_offset = 8 + length;
  out.data_bytes = file_bytes - out.data_offset;
  for (const auto& [name, value] : root.as_object()) {
    if (name == "__metadata__") {
      DSF_OK(parse_metadata(value, subject, out));
      continue;
    }
    DSF_TRY(TensorInfo info, parse_entry(name, value, subject));
    out.tensors.push_back(std::move(info));
  }
  DSF_OK(check_layout(out, subject));
  return out;
}

Result<Header> read_header(const std::filesystem::path& path) {
  DSF_TRY(const io::Fd fd, io::open_read(path));
  DSF_TRY(const uint64_t size, io::file_size(fd));
  std::vector<std::byte> prefix(std::min<uint64_t>(size, 8));
  DSF_OK(io::read_at(fd, 0, prefix));
  DSF_TRY(const uint64_t length, header_length(prefix, size, path.string()));
  prefix.resize(8 + length);
  DSF_OK(io::read_at(fd, 8, std::span(prefix).subspan(8)));
  return parse_header(prefix, size, path.string());
}

}  // namespace dsf::safetensors
