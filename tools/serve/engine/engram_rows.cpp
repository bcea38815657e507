#include "tools/serve/engine/engram_rows.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/base/random.h"
#include "dsf/base/time.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/packed.h"
#include "dsf/io/file.h"
#include "dsf/model/engram.h"

namespace dsf::serve {
namespace {

namespace fs = std::filesystem;

// The world sizes that a rank's files of a folder were packed for, read from their names.
Result<std::vector<int>> packed_worlds(const fs::path& dir, const engram::Layout& layout, int rank) {
  DSF_TRY(const std::vector<std::string> files, io::list_files(dir));
  const std::string prefix =
      "engram-l" + std::to_string(layout.layers().front().layer_id) + "-r" + std::to_string(rank) + "of";
  std::vector<int> worlds;
  for (const std::string& name : files) {
    if (!name.starts_with(prefix) || !name.ends_with(".bin")) continue;
    const auto world = parse_u64(std::string_view(name).substr(prefix.size(), name.size() - prefix.size() - 4));
    if (world && *world >= 1 && *world <= 1024) worlds.push_back(static_cast<int>(*world));
  }
  return worlds;
}

// Rows of the right file but with wrong bytes answer fluently. Where the packer left its digests, some blocks are compared, other
// ones at every start.
Result<void> check_content(const fs::path& dir, int world) {
  for (int rank = 0; rank < world; ++rank) {
    const engram::BlockChoice choice{.seed = static_cast<uint64_t>(unix_time_ms())};
    const auto compared = engram::compare_with_record(dir, rank, world, choice);
    if (!compared && compared.error().code == Code::kMissing) continue;
    if (!compared) return fail(compared.error());
    if (!compared->wrong.empty()) return fail(compared->wrong.front());
  }
  return {};
}

Result<std::unique_ptr<engram::RowSource>> open_source(const fs::path& model_dir, const fs::path& engram_dir,
                                                       const engram::Layout& layout, EngramRows::Owner owner) {
  std::vector<int> worlds;
  if (!engram_dir.empty()) {
    DSF_TRY(worlds, packed_worlds(engram_dir, layout, owner.rank));
  }
  const bool own_files = std::find(worlds.begin(), worlds.end(), owner.world) != worlds.end();
  if (owner.world > 1 && own_files) {
    DSF_TRY(std::unique_ptr<engram::RowSource> own,
            engram::PackedRows::open(engram_dir, layout, {.world = owner.world, .rank = owner.rank}));
    return own;
  }
  if (owner.rank > 0 && !engram_dir.empty()) {  // files of one rank alone are rank 0's
    DSF_TRY(worlds, packed_worlds(engram_dir, layout, 0));
  }
  if (worlds.size() > 1)
    return fail(Code::kUsage, engram_dir.string(), "holds packed Engram files of more than one world size",
                "keep one set");
  std::unique_ptr<engram::RowSource> source;
  if (worlds.empty()) {
    DSF_TRY(source, engram::CheckpointRows::open(engram_dir.empty() ? model_dir : engram_dir, layout));
  } else {
    DSF_TRY(source,
            engram::PackedRows::open(engram_dir, layout, {.world = worlds.front(), .rank = 0, .all_ranks = true}));
    DSF_OK(check_content(engram_dir, worlds.front()));
  }
  return source;
}

// Values of magnitude 1 to 1.75 and a scale of 1.
class DummyRows final : public engram::RowSource {
 public:
  explicit DummyRows(engram::Layout layout) : RowSource(std::move(layout)) {}
  engram::RowRange owned(size_t layer_index) const override { return {0, layout_.layers()[layer_index].rows}; }
  Result<void> read(size_t layer_index, std::span<const int64_t> rows, std::span<std::byte> out) const override {
    const auto bytes = static_cast<size_t>(layout_.row_bytes()), values = static_cast<size_t>(layout_.head_dim());
    for (size_t i = 0; i < rows.size(); ++i) {
      SplitMix64 random(static_cast<uint64_t>(rows[i]) * 2 + layer_index);
      std::byte* const row = out.data() + i * bytes;
      for (size_t at = 0; at < values; at += sizeof(uint64_t)) store_le(row + at, 0x3838383838383838u | (random.next() & 0x8383838383838383u));
      std::fill(row + values, row + bytes, std::byte{127});
    }
    return {};
  }
  std::vector<std::pair<std::string, std::string>> identity() const override { return {{"engram", "dummy"}}; }
};

// Ids numbered by first appearance, as many distinct ones as the configuration says.
Result<engram::TokenMap> dummy_map(const model::Config& c) {
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < c.vocab_size; ++id) ids.push_back(static_cast<int32_t>(id % c.engram_compressed_vocab_size));
  return engram::TokenMap::from_ids(std::move(ids), "dummy token map");
}

}  // namespace

Result<EngramRows> EngramRows::dummy(const model::Config& config, Owner owner) {
  DSF_TRY(engram::Layout layout, engram::Layout::create(model::engram_spec(config)));
  DSF_TRY(engram::TokenMap map, dummy_map(config));
  auto source = std::make_unique<DummyRows>(layout);
  DSF_TRY(const engram::RowRange columns, layout.rank_columns(owner.rank, owner.world));
  DSF_TRY(engram::Hasher hasher, engram::Hasher::create(std::move(layout), std::move(map), "dummy token map"));
  return EngramRows(std::move(hasher), std::move(source), columns);
}

Result<EngramRows> EngramRows::open(const model::Config& config, const fs::path& model_dir, const fs::path& engram_dir,
                                    std::optional<engram::TokenMap> map, Owner owner) {
  DSF_TRY(engram::Layout layout, engram::Layout::create(model::engram_spec(config)));
  if (!map) {
    DSF_TRY(map, model::load_token_map(model_dir, config));
  }
  DSF_TRY(std::unique_ptr<engram::RowSource> source, open_source(model_dir, engram_dir, layout, owner));
  DSF_TRY(const engram::RowRange columns, layout.rank_columns(owner.rank, owner.world));
  DSF_TRY(engram::Hasher hasher, engram::Hasher::create(std::move(layout), std::move(*map), model_dir.string()));
  return EngramRows(std::move(hasher), std::move(source), columns);
}

std::vector<std::vector<int64_t>> EngramRows::locate(std::span<const int32_t> tokens, int64_t n_new) const {
  const engram::Layout& layout = hasher_.layout();
  const int64_t columns = layout.columns(), own = columns_.size(), layers = n_layers(),
                old = std::ssize(tokens) - n_new;
  const int64_t reach = std::min(old, layout.spec().max_ngram_size - 1);
  engram::HashState state = hasher_.start();
  hasher_.advance(state, tokens.subspan(static_cast<size_t>(old - reach), static_cast<size_t>(reach)), {});
  std::vector<int64_t> rows(static_cast<size_t>(n_new * layers * columns));
  hasher_.rows(state, tokens.last(static_cast<size_t>(n_new)), {}, rows);
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(layers));
  for (int64_t i = 0; i < n_new; ++i) {
    for (int64_t l = 0; l < layers; ++l) {
      const auto from = rows.begin() + (i * layers + l) * columns + columns_.begin;
      out[static_cast<size_t>(l)].insert(out[static_cast<size_t>(l)].end(), from, from + own);
    }
  }
  return out;
}

Result<void> EngramRows::append(std::span<const int32_t> tokens, int64_t n_new,
                                std::vector<std::vector<float>>& values) const {
  const std::vector<std::vector<int64_t>> wanted = locate(tokens, n_new);
  for (size_t l = 0; l < wanted.size(); ++l) {
    std::vector<float>& out = values[l];
    const size_t before = out.size(), count = wanted[l].size() * static_cast<size_t>(hasher_.layout().head_dim());
    out.resize(before + count);
    DSF_OK(source_->gather(l, wanted[l], std::span(out).subspan(before)));
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> EngramRows::identity() const {
  auto pairs = source_->identity();
  pairs.emplace_back("engram_token_map_sha256", hasher_.map().digest());
  return pairs;
}

}  // namespace dsf::serve
