#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "dsf/safetensors/safetensors.h"

namespace dsf::made_checkpoint {
namespace {

using safetensors::File;
using safetensors::IndexEntry;
using safetensors::TensorData;
using safetensors::TensorInfo;
using tensor::DType;
namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";

constexpr std::pair<std::string_view, Damage> kNames[] = {
    {"flip-bit", Damage::kFlipBit},
    {"scramble", Damage::kScramble},
    {"truncate", Damage::kTruncate},
    {"wrong-shape", Damage::kWrongShape},
    {"wrong-dtype", Damage::kWrongDtype},
    {"missing-tensor", Damage::kMissingTensor},
    {"unlisted-tensor", Damage::kUnlistedTensor},
    {"duplicate-tensor", Damage::kDuplicateTensor},
    {"lost-shard", Damage::kLostShard},
    {"missing-shard", Damage::kMissingShard},
    {"long-header", Damage::kLongHeader},
    {"bad-header", Damage::kBadHeader},
    {"wrong-marker", Damage::kWrongMarker},
    {"dropped-marker", Damage::kDroppedMarker},
    {"not-finite", Damage::kNotFinite},
    {"drop-bias", Damage::kDropBias},
    {"drop-bias-vl", Damage::kDropBiasVl},
};

bool is_marker(const TensorInfo& t) { return t.name.ends_with(".mul1") || t.name.ends_with(".mcg"); }

// Whether the damage can be done to this tensor.
bool fits(Damage d, const TensorInfo& t) {
  switch (d) {
    case Damage::kWrongMarker:
    case Damage::kDroppedMarker:
      return is_marker(t);
    case Damage::kNotFinite:
      return t.name.ends_with(".suh") || t.name.ends_with(".svh") || t.dtype == DType::kF8E8M0;
    case Damage::kDropBias:
      return t.name.ends_with("ffn.gate.bias");
    case Damage::kDropBiasVl:
      return t.name.ends_with("ffn.gate.bias_vl");
    case Damage::kWrongShape:
      return t.shape.size() >= 2 && (t.shape[0] % 2 == 0 || t.shape[1] % 2 == 0);
    default:
      return t.n_bytes() > 1 && !t.shape.empty();
  }
}

// The folder's index and what is needed to change one shard.
class Folder {
 public:
  static Result<Folder> open(const fs::path& dir) {
    DSF_TRY(const std::string text, io::read_text(dir / kIndexName));
    DSF_TRY(const json::Value root, json::parse(text, (dir / kIndexName).string()));
    const json::Cursor cursor(root, kIndexName);
    DSF_TRY(const json::Cursor map, cursor.at("weight_map"));
    Folder folder(dir);
    for (const auto& [tensor, file] : map.value().as_object()) folder.entries.push_back({tensor, file.as_string()});
    DSF_TRY(const json::Cursor metadata, cursor.at("metadata"));
    DSF_TRY(folder.total, metadata.integer_at("total_size", 0));
    return folder;
  }

  Result<IndexEntry> choose(const Breakage& b) const {
    std::string last_file;
    safetensors::Header header;
    for (const IndexEntry& e : entries) {
      if (!b.tensor.empty() && e.tensor != b.tensor) continue;
      if (b.tensor.empty() && !e.tensor.starts_with("layers.")) continue;
      if (e.file != last_file) {
        DSF_TRY(header, safetensors::read_header(dir / e.file));
        last_file = e.file;
      }
      const TensorInfo* info = header.find(e.tensor);
      if (info && fits(b.damage, *info)) return e;
    }
    return fail(Code::kMissing, dir.string(),
                b.tensor.empty() ? "no tensor fits this damage" : "no tensor " + b.tensor + " that fits this damage",
                "name a tensor of the index");
  }

  // Rewrites one shard after a change of its tensors.
  Result<void> rewrite(const std::string& file, const std::function<void(std::vector<TensorData>&)>& change) const {
    std::vector<TensorData> tensors;
    std::vector<std::pair<std::string, std::string>> metadata;
    {
      DSF_TRY(const File shard, File::open(dir / file));
      metadata = shard.header().metadata;
      for (const TensorInfo& t : shard.header().tensors) {
        DSF_TRY(const safetensors::TensorView view, shard.tensor(t.name));
        tensors.push_back({t.name, t.dtype, t.shape, {view.bytes.begin(), view.bytes.end()}});
      }
    }
    change(tensors);
    return safetensors::write_file(dir / file, tensors, metadata);
  }

  Result<void> rewrite_one(const IndexEntry& e, const std::function<void(TensorData&)>& change) const {
    return rewrite(e.file, [&](std::vector<TensorData>& tensors) {
      for (TensorData& t : tensors)
        if (t.name == e.tensor) change(t);
    });
  }

  Result<void> remove_from_shard(const IndexEntry& e) const {
    return rewrite(e.file, [&](std::vector<TensorData>& tensors) {
      std::erase_if(tensors, [&](const TensorData& t) { return t.name == e.tensor; });
    });
  }

  Result<void> remove(const IndexEntry& e) {
    DSF_TRY(const safetensors::Header header, safetensors::read_header(dir / e.file));
    if (const TensorInfo* info = header.find(e.tensor)) total -= static_cast<int64_t>(info->n_bytes());
    DSF_OK(remove_from_shard(e));
    std::erase_if(entries, [&](const IndexEntry& other) { return other.tensor == e.tensor; });
    return write_index();
  }

  Result<void> write_index() const {
    return safetensors::write_index(dir / kIndexName, entries, static_cast<uint64_t>(total));
  }

  fs::path dir;
  std::vector<IndexEntry> entries;
  int64_t total = 0;

 private:
  explicit Folder(fs::path d) : dir(std::move(d)) {}
};

void widen(tensor::Shape& shape) {
  const size_t halved = shape[0] % 2 == 0 ? 0 : 1;
  shape[halved] /= 2;
  shape[1 - halved] *= 2;
}

DType other_type(DType t) {
  switch (t) {
    case DType::kBF16:
      return DType::kF16;
    case DType::kF16:
      return DType::kBF16;
    case DType::kF32:
      return DType::kI32;
    case DType::kI32:
      return DType::kF32;
    case DType::kI16:
      return DType::kU16;
    case DType::kF8E4M3:
      return DType::kF8E5M2;
    case DType::kF8E8M0:
      return DType::kU8;
    default:
      return DType::kU8;
  }
}

void make_not_finite(TensorData& t) {
  if (t.dtype == DType::kF8E8M0) {
    t.bytes[t.bytes.size() / 2] = std::byte{0xff};
  } else {
    store_le(t.bytes.data() + t.bytes.size() / 4 * 2, uint16_t{0x7c00});
  }
}

// Damage inside one tensor of a shard that stays a well-formed file.
Result<void> change_tensor(const Folder& folder, const IndexEntry& e, Damage d) {
  return folder.rewrite_one(e, [d](TensorData& t) {
    switch (d) {
      case Damage::kFlipBit:
        t.bytes[t.bytes.size() / 2] ^= std::byte{0x04};
        break;
      case Damage::kScramble:
        for (size_t i = 0; i < t.bytes.size(); ++i) t.bytes[i] ^= static_cast<std::byte>(0x55 + i % 7);
        break;
      case Damage::kWrongShape:
        widen(t.shape);
        break;
      case Damage::kWrongDtype:
        t.dtype = other_type(t.dtype);
        break;
      case Damage::kWrongMarker:
        t.bytes[1] ^= std::byte{0x18};
        break;
      case Damage::kNotFinite:
        make_not_finite(t);
        break;
      default:
        DSF_CHECK(false, "not a damage inside a tensor");
    }
  });
}

// Damage to the file as such.
Result<void> change_file(const Folder& folder, const IndexEntry& e, Damage d) {
  const fs::path path = folder.dir / e.file;
  if (d == Damage::kLostShard) return io::remove_file(path);
  DSF_TRY(const safetensors::Header header, safetensors::read_header(path));
  if (d == Damage::kTruncate) {
    const TensorInfo* info = header.find(e.tensor);
    std::error_code ec;
    fs::resize_file(path, header.data_offset + (info->begin + info->end) / 2, ec);
    if (ec) return fail(Code::kLocal, path.string(), "cannot be shortened: " + ec.message());
    return {};
  }
  DSF_TRY(const io::Fd fd, io::open_write(path, true));
  if (d == Damage::kBadHeader) return io::write_at(fd, 8, as_bytes("["));
  std::array<std::byte, 8> length{};
  store_le(length.data(), uint64_t{1} << 40);
  return io::write_at(fd, 0, length);
}

Result<void> duplicate(const Folder& folder, const IndexEntry& e) {
  const auto other =
      std::find_if(folder.entries.begin(), folder.entries.end(), [&](const IndexEntry& o) { return o.file != e.file; });
  if (other == folder.entries.end()) return fail(Code::kMissing, folder.dir.string(), "has one shard only");
  TensorData copy;
  DSF_OK(folder.rewrite_one(e, [&](TensorData& t) { copy = t; }));
  return folder.rewrite(other->file, [&](std::vector<TensorData>& tensors) { tensors.push_back(copy); });
}

Result<void> drop_all(Folder& folder, Damage d) {
  const std::string_view suffix = d == Damage::kDropBias ? "ffn.gate.bias" : "ffn.gate.bias_vl";
  const std::vector<IndexEntry> before = folder.entries;
  for (const IndexEntry& e : before)
    if (e.tensor.ends_with(suffix)) DSF_OK(folder.remove(e));
  return {};
}

Result<void> apply(Folder& folder, const IndexEntry& e, Damage d) {
  switch (d) {
    case Damage::kTruncate:
    case Damage::kLostShard:
    case Damage::kLongHeader:
    case Damage::kBadHeader:
      return change_file(folder, e, d);
    case Damage::kMissingTensor:
    case Damage::kDroppedMarker:
      return folder.remove(e);
    case Damage::kUnlistedTensor:
      return folder.remove_from_shard(e);
    case Damage::kDuplicateTensor:
      return duplicate(folder, e);
    case Damage::kMissingShard:
      for (IndexEntry& other : folder.entries)
        if (other.tensor == e.tensor) other.file = "model-99999-of-99999.safetensors";
      return folder.write_index();
    case Damage::kDropBias:
    case Damage::kDropBiasVl:
      return drop_all(folder, d);
    default:
      return change_tensor(folder, e, d);
  }
}

}  // namespace

std::vector<std::string_view> breakage_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, damage] : kNames) names.push_back(name);
  return names;
}

Result<Breakage> parse_breakage(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  for (const auto& [name, damage] : kNames) {
    if (name == kind)
      return Breakage{damage, colon == std::string_view::npos ? "" : std::string(text.substr(colon + 1))};
  }
  std::string list;
  for (const std::string_view name : breakage_names()) list += (list.empty() ? "" : ", ") + std::string(name);
  return fail(Code::kUsage, "--break " + std::string(text), "unknown kind of damage", "use one of " + list);
}

Result<std::string> damage(const fs::path& dir, const Breakage& breakage) {
  DSF_TRY(Folder folder, Folder::open(dir));
  DSF_TRY(const IndexEntry e, folder.choose(breakage));
  DSF_OK(apply(folder, e, breakage.damage));
  const auto name = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& n) {
                      return n.second == breakage.damage;
                    })->first;
  if (breakage.damage == Damage::kDropBias || breakage.damage == Damage::kDropBiasVl)
    return std::string(name) + " in every shard of " + dir.string();
  return std::string(name) + " of " + e.tensor + " in " + (dir / e.file).string();
}

}  // namespace dsf::made_checkpoint
