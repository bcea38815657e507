#include "dsf/model/split.h"

#include <algorithm>
#include <array>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/engram/layout.h"
#include "dsf/model/engram.h"

namespace dsf::model {
namespace {

constexpr int64_t kBlock = 128;  // EXL3's Hadamard block

// n units over world ranks, the larger shares first.
Range share_of(int64_t n, int rank, int world) {
  const int64_t per = n / world, rest = n % world;
  return {rank * per + std::min<int64_t>(rank, rest), (rank + 1) * per + std::min<int64_t>(rank + 1, rest)};
}

// The widest block that gives every rank one; EXL3 knows a single width.
int64_t block_for(int64_t width, int world, StoredForm form) {
  if (form == StoredForm::kExl3) return kBlock;
  for (const int64_t block : {kBlock, kBlock / 2})
    if (width % block == 0 && width / block >= world) return block;
  return kBlock / 4;
}

Range blocks_of(int64_t width, int rank, int world, StoredForm form) {
  const int64_t block = block_for(width, world, form);
  const Range r = share_of(ceil_div(width, block), rank, world);
  return {std::min(r.begin * block, width), std::min(r.end * block, width)};
}

Result<void> check_blocks(const Config& c, int world, StoredForm form) {
  if (form != StoredForm::kExl3 || world == 1) return {};
  const std::pair<const char*, int64_t> parts[] = {
      {"moe_intermediate_size", c.moe_intermediate_size},
      {"vocab_size", c.vocab_size},
      {"o_lora_rank", c.o_lora_rank},
      {"heads of an output group", c.num_attention_heads / c.o_groups * c.head_dim}};
  for (const auto& [name, width] : parts)
    if (width % kBlock != 0)
      return fail(Code::kContent, name,
                  std::to_string(width) + " is not a multiple of 128, which EXL3 needs to be cut");
  return {};
}

std::string range_text(const char* name, Range r) {
  return std::string(" ") + name + " " + std::to_string(r.begin) + "-" + std::to_string(r.end);
}

}  // namespace

Result<Split> Split::create(const Config& c, int world, StoredForm form) {
  const std::string subject = "world size " + std::to_string(world);
  if (world < 1 || world > 1024) return fail(Code::kUsage, subject, "is not a number of ranks", "use 1 or 2", "world");
  DSF_OK(check_blocks(c, world, form));
  const int64_t per_group = c.num_attention_heads / c.o_groups;
  std::optional<engram::Layout> layout;
  if (!c.engram_layer_ids.empty()) {
    DSF_TRY(layout, engram::Layout::create(engram_spec(c)));
  }
  std::vector<RankShare> shares;
  for (int r = 0; r < world; ++r) {
    RankShare s;
    s.groups = share_of(c.o_groups, r, world);
    s.heads = {s.groups.begin * per_group, s.groups.end * per_group};
    s.expert = blocks_of(c.moe_intermediate_size, r, world, form);
    s.shared = blocks_of(c.n_shared_experts * c.moe_intermediate_size, r, world, form);
    s.vocab = blocks_of(c.vocab_size, r, world, form);
    if (s.vocab.size() == 0)
      return fail(Code::kUsage, subject, "leaves rank " + std::to_string(r) + " without a part of the vocabulary",
                  "use a smaller world size", "world");
    if (layout) {
      DSF_TRY(const engram::RowRange columns, layout->rank_columns(r, world));
      s.columns = {columns.begin, columns.end};
    }
    shares.push_back(s);
  }
  return Split(form, std::move(shares));
}

Split Split::whole(const Config& c) {
  RankShare s;
  s.groups = {0, c.o_groups};
  s.heads = {0, c.num_attention_heads};
  s.expert = {0, c.moe_intermediate_size};
  s.shared = {0, c.n_shared_experts * c.moe_intermediate_size};
  s.vocab = {0, c.vocab_size};
  if (!c.engram_layer_ids.empty()) s.columns = {0, c.engram_columns()};
  return Split(StoredForm::kNative, {s});
}

std::string Split::text() const {
  std::string out = "split 1 world " + std::to_string(world()) + (form_ == StoredForm::kExl3 ? " exl3\n" : " native\n");
  for (size_t r = 0; r < shares_.size(); ++r) {
    const RankShare& s = shares_[r];
    out += "rank " + std::to_string(r) + range_text("groups", s.groups) + range_text("heads", s.heads) +
           range_text("expert", s.expert) + range_text("shared", s.shared) + range_text("vocab", s.vocab) +
           range_text("columns", s.columns) + "\n";
  }
  return out;
}

std::string Split::digest(const Config& config) const { return codec::sha256(text() + canonical_text(config)).hex(); }

// ---- one stored tensor

namespace {

struct Logical {  // what of a module is cut
  bool inputs = false;
  int64_t extent = 0;  // of the cut axis, logical elements
  Range range;
};

bool is_vision(std::string_view name) {
  return name.starts_with("vision.") || name.starts_with("aligner.") || name.starts_with("image_");
}

// "layers.3.attn.wq_b" -> "attn.wq_b"; names outside blocks stay as they are.
std::string_view inside_block(std::string_view module) {
  if (!module.starts_with("layers.") && !module.starts_with("mtp.")) return module;
  const size_t number = module.find('.') + 1, rest = module.find('.', number);
  return rest == std::string_view::npos ? module : module.substr(rest + 1);
}

std::optional<Logical> logical_cut(const Config& c, const RankShare& s, std::string_view module) {
  const auto lora = [&](Range groups) { return Range{groups.begin * c.o_lora_rank, groups.end * c.o_lora_rank}; };
  const auto dims = [&](Range heads) { return Range{heads.begin * c.head_dim, heads.end * c.head_dim}; };
  const std::string_view leaf = module.substr(module.rfind('.') + 1);
  if (module == "head") return Logical{false, c.vocab_size, s.vocab};
  if (module == "attn.wq_b") return Logical{false, c.num_attention_heads * c.head_dim, dims(s.heads)};
  if (module == "attn.attn_sink") return Logical{false, c.num_attention_heads, s.heads};
  if (module == "attn.wo_a") return Logical{false, c.o_groups * c.o_lora_rank, lora(s.groups)};
  if (module == "attn.wo_b") return Logical{true, c.o_groups * c.o_lora_rank, lora(s.groups)};
  if (module.starts_with("ffn.experts.")) return Logical{leaf == "w2", c.moe_intermediate_size, s.expert};
  if (module.starts_with("ffn.shared_experts."))
    return Logical{leaf == "w2", c.n_shared_experts * c.moe_intermediate_size, s.shared};
  return std::nullopt;
}

// Stored elements of an axis stand for 1, 2 (FP4 pairs), 16 (tiles) or 32 (scales) logical ones each.
std::optional<int64_t> unit_of(int64_t logical, int64_t stored) {
  for (const int64_t unit : {1, 2, 16, 32})
    if (ceil_div(logical, unit) == stored) return unit;
  return std::nullopt;
}

}  // namespace

Result<TensorCut> cut_of(const Split& split, const Config& config, std::string_view tensor, const tensor::Shape& shape,
                         int rank) {
  if (is_vision(tensor)) return rank == 0 ? TensorCut{} : TensorCut{0, {0, 0}};
  constexpr std::array<std::string_view, 7> kParts{".weight", ".scale", ".trellis", ".suh", ".svh", ".mul1", ".mcg"};
  std::string_view module = inside_block(tensor), part;
  for (const std::string_view p : kParts)
    if (module.ends_with(p)) part = p, module.remove_suffix(p.size());

  constexpr std::string_view kSlice = "attn.wo_a.slice.";
  const RankShare& share = split.share(rank);
  if (module.starts_with(kSlice)) {
    const auto group = parse_i64(module.substr(kSlice.size()));
    const bool own = group && *group >= share.groups.begin && *group < share.groups.end;
    return own ? TensorCut{} : TensorCut{0, {0, 0}};
  }
  const auto cut = logical_cut(config, share, module);
  const bool other_axis = (part == ".suh" && cut && !cut->inputs) || (part == ".svh" && cut && cut->inputs);
  if (!cut || split.world() == 1 || other_axis || part == ".mul1" || part == ".mcg") return TensorCut{};

  // A trellis stands inputs first; scale vectors have one axis.
  const int axis = part == ".suh" || part == ".svh" ? 0 : (part == ".trellis") != cut->inputs ? 1 : 0;
  if (std::ssize(shape) <= axis)
    return fail(Code::kContent, std::string(tensor), "has shape " + tensor::shape_text(shape));
  const auto unit = unit_of(cut->extent, shape[static_cast<size_t>(axis)]);
  const bool at_end = cut->range.end == cut->extent;
  if (!unit || cut->range.begin % *unit != 0 || (!at_end && cut->range.end % *unit != 0))
    return fail(Code::kContent, std::string(tensor),
                "shape " + tensor::shape_text(shape) + " cannot be cut at " + std::to_string(cut->range.begin) +
                    " and " + std::to_string(cut->range.end) + " of " + std::to_string(cut->extent));
  return TensorCut{axis, {cut->range.begin / *unit, ceil_div(cut->range.end, *unit)}};
}

}  // namespace dsf::model
