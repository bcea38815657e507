#include "dsf/safetensors/safetensors.h"

namespace dsf::safetensors {

Result<File> File::open(const std::filesystem::path& path) {
  File out;
  out.path_ = path;
  DSF_TRY(out.map_, io::Mmap::open(path));
  const auto bytes = out.map_.bytes();
  DSF_TRY(Header header, parse_header(bytes, bytes.size(), path.string()));
  out.header_ = std::make_unique<Header>(std::move(header));
  return out;
}

Result<TensorView> File::tensor(std::string_view name) const {
  const TensorInfo* info = header_->find(name);
  if (info == nullptr) return fail(Code::kMissing, path_.string(), "no tensor " + std::string(name), {}, "missing_tensor");
  return TensorView{info, map_.bytes().subspan(header_->data_offset + info->begin, info->n_bytes())};
}

}  // namespace dsf::safetensors
