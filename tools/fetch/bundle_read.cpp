#include "tools/fetch/bundle_read.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/codec/signature.h"

namespace dsf::fetch {
namespace {

constexpr uint64_t kMaxVolumes = 100'000;

Unexpected damaged(const std::string& subject, const std::string& what) {
  return fail(Code::kContent, subject, what, "copy the bundle again", "bundle");
}

// Size from the first tar header: eleven octal digits.
std::optional<uint64_t> octal_size(std::string_view block) {
  if (block.size() < 512) return std::nullopt;
  uint64_t n = 0;
  for (const char c : block.substr(124, 11)) {
    if (c < '0' || c > '7') return std::nullopt;
    n = n * 8 + static_cast<uint64_t>(c - '0');
  }
  return n;
}

}  // namespace

Result<BundleReader> BundleReader::open(const std::filesystem::path& path) {
  BundleReader r;
  DSF_TRY(Volume first, Volume::open(volume_path(path, 0)));
  const std::string id = first.bundle;
  if (first.index != 0 || first.raw_begin != 0) return damaged(path.string(), "its first volume is another one");
  r.volumes_.push_back(std::move(first));
  DSF_OK(r.read_list(path));
  if (r.id_ != id) return damaged(path.string(), "its list is not the one it was made with");
  const uint64_t end = r.members_.back().end();
  // Volumes up to the one that ends the stream; after some that are missing, as many as there are names.
  int absent = 0;
  for (uint64_t i = 1; i < kMaxVolumes && r.volumes_.back().raw_end < end && absent < 1000; ++i) {
    auto v = Volume::open(volume_path(path, i));
    if (!v && v.error().code == Code::kMissing) {
      ++absent;
      continue;
    }
    if (v && (v->bundle != id || v->index != i || v->raw_begin < r.volumes_.back().raw_end))
      v = damaged(v->path.string(), "belongs to another bundle or place");
    if (v) {
      r.volumes_.push_back(std::move(*v));
    } else {
      r.problems_.push_back(v.error());
    }
  }
  return r;
}

// BUNDLE.json, SHA256SUMS, manifest.json and its signature: all in the first volume, since they are small.
Result<void> BundleReader::read_list(const std::filesystem::path& path) {
  const Volume& v = volumes_.front();
  if (v.frames.empty()) return damaged(path.string(), "its first volume is empty");
  std::string raw;
  std::optional<uint64_t> size;
  for (const StoredFrame& f : v.frames) {
    DSF_TRY(const std::string bytes, v.read(f));
    raw += bytes;
    if (!size) size = octal_size(raw);
    if (!size || *size > manifest::kMaxPinBytes) return damaged(path.string(), "does not begin with its list");
    if (raw.size() >= 512 + *size) break;
  }
  if (!size || raw.size() < 512 + *size) return damaged(path.string(), "its list is cut");
  const std::string json = raw.substr(512, static_cast<size_t>(*size));
  id_ = codec::sha256(json).hex();
  BundleSizes sizes;
  DSF_TRY(bundle_, parse_bundle(json, sizes, path.string() + ": BUNDLE.json"));
  members_ = members_of(bundle_, json, sizes);
  frames_ = frames_of(members_);
  for (Member& m : members_) {
    if (m.path != "manifest.json" && m.path != "manifest.json.sig") continue;
    if (m.file) continue;
    std::string& text = m.path == "manifest.json" ? bundle_.manifest : bundle_.signature;
    for (size_t i = 0; i < frames_.size(); ++i) {
      if (frames_[i].member != static_cast<size_t>(&m - members_.data())) continue;
      DSF_TRY(const std::string bytes, read(frames_[i]));
      text += content_of(m, frames_[i], bytes).second;
    }
    m.text = text;
  }
  return {};
}

const Volume* BundleReader::volume_of(const Frame& frame) const {
  const auto v = std::find_if(volumes_.begin(), volumes_.end(),
                              [&](const Volume& x) { return x.raw_begin <= frame.begin && frame.end <= x.raw_end; });
  return v == volumes_.end() ? nullptr : &*v;
}

Result<std::string> BundleReader::read(const Frame& frame, codec::Sha256* whole) const {
  const Member& m = members_[frame.member];
  const std::string subject = m.path.empty() ? "the end of the stream" : manifest::printable(m.path);
  const Volume* v = volume_of(frame);
  if (v == nullptr)
    return fail(Code::kMissing, subject, "lies in a volume that is not there", "copy that volume", "volume");
  const auto stored = std::lower_bound(v->frames.begin(), v->frames.end(), frame.begin,
                                       [](const StoredFrame& f, uint64_t at) { return f.raw_begin < at; });
  if (stored == v->frames.end() || stored->raw_begin != frame.begin || stored->raw != frame.end - frame.begin)
    return damaged(v->path.string(), "its frames are not those of its list");
  DSF_TRY(std::string raw, v->read(*stored, whole));
  const auto [offset, content] = content_of(m, frame, raw);
  const uint64_t begin = std::clamp(m.content() + offset, frame.begin, frame.end), end = begin + content.size();
  // The text of an inline member is compared too, once it is known.
  const bool inlined = !m.file && (m.size == 0 || !m.text.empty());
  const bool fixed = inlined
                         ? fixed_bytes(m, frame.begin, frame.end) == raw
                         : fixed_bytes(m, frame.begin, begin) == std::string_view(raw).substr(0, begin - frame.begin) &&
                               fixed_bytes(m, end, frame.end) == std::string_view(raw).substr(end - frame.begin);
  return fixed ? Result<std::string>(std::move(raw))
               : damaged(subject, "its header or padding is not that of the list");
}

Result<void> BundleReader::check_signature(const std::filesystem::path& key) const {
  if (bundle_.signature.empty())
    return fail(Code::kContent, "manifest.json", "is not signed", "sign the pin before it is bundled", "signature");
  return codec::check_signature(codec::kPinDomain, codec::sha256(bundle_.manifest), bundle_.signature,
                                "manifest.json.sig", key);
}

std::pair<uint64_t, std::string_view> content_of(const Member& m, const Frame& f, std::string_view raw) {
  const uint64_t begin = std::clamp(m.content(), f.begin, f.end);
  const uint64_t end = std::clamp(m.content() + m.size, f.begin, f.end);
  return {begin - std::min(begin, m.content()),
          raw.substr(static_cast<size_t>(begin - f.begin), static_cast<size_t>(end - begin))};
}

}  // namespace dsf::fetch
