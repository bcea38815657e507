#include "tools/verify/structure.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::verify {
namespace {

constexpr uint64_t kPeerHeaderLimit = 25'000'000;  // some loaders stop here, the reference at four times as much

struct DTypeBits {
  std::string_view name;
  uint64_t bits;
};
constexpr std::array<DTypeBits, 24> kBits{
    {{"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8},
     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
     {"I32", 32},        {"U32", 32},        {"F32", 32},    {"I64", 64},    {"U64", 64},    {"F64", 64},
     {"C64", 64},        {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"F4", 4},      {"F4_E2M1", 4}, {"F8_E3M4", 8}}};
const DTypeBits* bits_of(std::string_view name) {
  const auto it = std::find_if(kBits.begin(), kBits.end(), [&](const DTypeBits& d) { return d.name == name; });
  return it == kBits.end() ? nullptr : &*it;
}

// Downloads that went wrong leave a web page, an LFS pointer or an error document under the file's name.
const char* not_a_tensor_file(std::string_view head) {
  if (head.starts_with("<!DOCTYPE") || head.starts_with("<!doctype") || head.starts_with("<html"))
    return "is a web page";
  if (head.starts_with("version https://git-lfs")) return "is a git-lfs pointer, not the file it points to";
  if (head.starts_with("{\"error\"") || head.starts_with("Not Found")) return "is a server's error message";
  return nullptr;
}

class Checker {
 public:
  Checker(const io::Fd& fd, uint64_t size, const Expected* expected) : fd_(fd), size_(size), expected_(expected) {}

  Result<Structure> run() {
    DSF_TRY(const bool readable, read_header());
    if (!readable) return std::move(out_);
    check_pinned_header();
    if (!parse()) return std::move(out_);
    check_coverage();
    if (!out_.tensors.empty()) check_hole();
    compare_with_loader();
    return std::move(out_);
  }

 private:
  void error(const char* code, std::string text) { add(code, Severity::kError, std::move(text)); }
  void warning(const char* code, std::string text) { add(code, Severity::kWarning, std::move(text)); }
  void add(const char* code, Severity s, std::string text) {
    if (out_.findings.size() < 100) out_.findings.push_back({code, s, std::move(text)});
  }

  Result<bool> read_header() {
    std::array<std::byte, 64> head{};
    const auto prefix = std::span(head).first(std::min<uint64_t>(size_, head.size()));
    DSF_OK(io::read_at(fd_, 0, prefix));
    if (const char* what = not_a_tensor_file(as_text(prefix)))
      return error("ST13", std::string(what) + "; fetch it again"), false;
    if (size_ < 8)
      return error("ST01", "is " + std::to_string(size_) + " bytes, too short for a safetensors file; fetch it again"),
             false;
    const auto n = load_le<uint64_t>(head.data());
    if (n > safetensors::kMaxHeaderBytes)
      return error("ST02", "header length " + std::to_string(n) + " is beyond the format's limit; fetch it again"),
             false;
    if (n > kPeerHeaderLimit) warning("ST02", "header length " + std::to_string(n) + " is more than some loaders take");
    if (n > size_ - 8)
      return error("ST03", "header length " + std::to_string(n) + " is beyond the file's " + std::to_string(size_) +
                               " bytes; fetch it again"),
             false;
    header_.resize(8 + n);
    DSF_OK(io::read_at(fd_, 0, header_));
    data_bytes_ = size_ - 8 - n;
    if ((8 + n) % 8 != 0)
      warning("ST11", "tensor data begins at byte " + std::to_string(8 + n) + ", not a multiple of 8");
    return true;
  }

  void check_pinned_header() {
    if (expected_ == nullptr || expected_->header_sha256.empty()) return;
    if (expected_->header_bytes != header_.size() || codec::sha256(header_).hex() != expected_->header_sha256)
      error("ST12", "its header is not the pinned one; fetch it again");
  }

  bool parse() {
    std::string_view text = as_text(std::span<const std::byte>(header_).subspan(8));
    if (!text.starts_with("{")) return error("ST04", "header does not begin with '{'; fetch it again"), false;
    const size_t last = text.find_last_not_of(' ');
    text = text.substr(0, last + 1);
    const auto root = json::parse(text, "header", {.max_depth = 8, .reject_duplicate_keys = true});
    if (!root) return error("ST05", "header is not strict JSON: " + root.error().what + "; fetch it again"), false;
    for (const auto& [name, value] : root->as_object())
      if (name == "__metadata__")
        check_metadata(value);
      else
        check_entry(name, value);
    return true;
  }

  void check_metadata(const json::Value& value) {
    if (!value.is_object()) return error("ST06", "__metadata__ is not an object");
    for (const auto& [key, text] : value.as_object())
      if (!text.is_string()) error("ST06", "__metadata__." + key + " is not a string");
  }

  void check_entry(const std::string& name, const json::Value& value) {
    const json::Value *dtype = value.find("dtype"), *shape = value.find("shape"), *offsets = value.find("data_offsets");
    const bool well_formed = dtype != nullptr && dtype->is_string() && shape != nullptr && shape->is_array() &&
                             offsets != nullptr && offsets->is_array() && offsets->as_array().size() == 2;
    if (!well_formed) return error("ST07", "tensor " + name + ": dtype, shape and data_offsets expected");
    if (value.as_object().size() != 3) warning("ST07", "tensor " + name + ": unknown extra members");
    const auto begin = offsets->as_array()[0].to_i64(), end = offsets->as_array()[1].to_i64();
    if (!begin || !end || *begin < 0 || *end < *begin)
      return error("ST07", "tensor " + name + ": data_offsets are not an ascending pair");
    std::optional<uint64_t> elements = 1;
    for (const json::Value& d : shape->as_array()) {
      const auto n = d.to_i64();
      if (!n || *n < 0) return error("ST07", "tensor " + name + ": shape holds something other than sizes");
      if (elements) elements = checked_mul(*elements, static_cast<uint64_t>(*n));
    }
    Tensor t{name, dtype->as_string(), static_cast<uint64_t>(*begin), static_cast<uint64_t>(*end)};
    check_product(t, elements);
    out_.tensors.push_back(std::move(t));
  }

  void check_product(const Tensor& t, std::optional<uint64_t> elements) {
    const DTypeBits* d = bits_of(t.dtype);
    if (d == nullptr) {
      unknown_dtype_ = true;
      return warning("ST08",
                     "tensor " + t.name + ": unknown dtype " + json::quote(t.dtype) + ", its size is not checked");
    }
    const auto bits = elements ? checked_mul(*elements, d->bits) : std::nullopt;
    if (!bits) return error("ST08", "tensor " + t.name + ": shape overflows");
    if (*bits % 8 != 0 || *bits / 8 != t.end - t.begin)
      error("ST08", "tensor " + t.name + ": its shape needs " + std::to_string(*bits / 8) +
                        " bytes, data_offsets give " + std::to_string(t.end - t.begin) + "; fetch it again");
  }

  void check_coverage() {
    std::sort(out_.tensors.begin(), out_.tensors.end(),
              [](const Tensor& a, const Tensor& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    uint64_t at = 0;
    for (const Tensor& t : out_.tensors) {
      if (t.begin != at)
        error("ST09", "tensor " + t.name + (t.begin < at ? " overlaps the one before it" : " leaves a hole before it") +
                          "; fetch it again");
      at = std::max(at, t.end);
    }
    if (at > data_bytes_)
      error("ST10", "truncated: tensors need " + std::to_string(at) + " bytes, the file has " +
                        std::to_string(data_bytes_) + "; fetch it again");
    if (at < data_bytes_)
      error("ST10", std::to_string(data_bytes_ - at) + " bytes follow the last tensor; fetch it again");
  }

  void check_hole() {
    const Tensor& last = out_.tensors.back();
    if (last.end - last.begin <= kMiB || last.end > data_bytes_) return;
    const auto begin = static_cast<off_t>(header_.size() + last.begin);
    const off_t data = ::lseek(fd_.get(), begin, SEEK_DATA);
    if (data < 0 && errno == ENXIO) warning("ST14", "hole in file at the last tensor, probably an unfinished download");
  }

  // The engine's own parser must agree: a file that it would refuse never passes here.
  void compare_with_loader() {
    const bool clean = std::none_of(out_.findings.begin(), out_.findings.end(),
                                    [](const Finding& f) { return f.severity == Severity::kError; });
    if (!clean || unknown_dtype_) return;
    const auto header = safetensors::parse_header(header_, size_, "file");
    if (!header) error("ST00", "the loader refuses it: " + header.error().what);
  }

  const io::Fd& fd_;
  uint64_t size_, data_bytes_ = 0;
  const Expected* expected_;
  std::vector<std::byte> header_;
  bool unknown_dtype_ = false;
  Structure out_;
};

}  // namespace

Result<Structure> check_structure(const std::filesystem::path& path, const Expected* expected) {
  DSF_TRY(const io::Fd fd, io::open_read(path));
  DSF_TRY(const uint64_t size, io::file_size(fd));
  return Checker(fd, size, expected).run();
}

}  // namespace dsf::verify
