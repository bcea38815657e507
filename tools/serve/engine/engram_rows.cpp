#include "tools/serve/engine/engram_rows.h"

#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/engram/pack_record.h"
#include "dsf/engram/packed.h"
#include "dsf/io/file.h"
#include "dsf/model/engram.h"

namespace dsf::serve {
namespace {

namespace fs = std::filesystem;

// The world sizes that rank 0's files of a folder were packed for, read from their names.
Result<std::vector<int>> packed_worlds(const fs::path& dir, const engram::Layout& layout) {
  DSF_TRY(const std::vector<std::string> files, io::list_files(dir));
  const std::string prefix = "engram-l" + std::to_string(layout.layers().front().layer_id) + "-r0of";
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
                                                       const engram::Layout& layout) {
  std::vector<int> worlds;
  if (!engram_dir.empty()) {
    DSF_TRY(worlds, packed_worlds(engram_dir, layout));
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

}  // namespace

Result<EngramRows> EngramRows::open(const model::Config& config, const fs::path& model_dir, const fs::path& engram_dir,
                                    std::optional<engram::TokenMap> map) {
  DSF_TRY(engram::Layout layout, engram::Layout::create(model::engram_spec(config)));
  if (!map) {
    DSF_TRY(map, model::load_token_map(model_dir, config));
  }
  DSF_TRY(std::unique_ptr<engram::RowSource> source, open_source(model_dir, engram_dir, layout));
  DSF_TRY(engram::Hasher hasher, engram::Hasher::create(std::move(layout), std::move(*map), model_dir.string()));
  return EngramRows(std::move(hasher), std::move(source));
}

Result<void> EngramRows::append(std::span<const int32_t> tokens, int64_t n_new,
                                std::vector<std::vector<float>>& values) const {
  const engram::Layout& layout = hasher_.layout();
  const int64_t columns = layout.columns(), layers = n_layers(), old = std::ssize(tokens) - n_new;
  const int64_t reach = std::min(old, layout.spec().max_ngram_size - 1);
  engram::HashState state = hasher_.start();
  hasher_.advance(state, tokens.subspan(static_cast<size_t>(old - reach), static_cast<size_t>(reach)), {});
  std::vector<int64_t> rows(static_cast<size_t>(n_new * layers * columns)),
      wanted(static_cast<size_t>(n_new * columns));
  hasher_.rows(state, tokens.last(static_cast<size_t>(n_new)), {}, rows);
  for (int64_t l = 0; l < layers; ++l) {
    for (int64_t i = 0; i < n_new; ++i)
      std::copy_n(rows.begin() + (i * layers + l) * columns, columns, wanted.begin() + i * columns);
    std::vector<float>& out = values[static_cast<size_t>(l)];
    const size_t before = out.size(), count = wanted.size() * static_cast<size_t>(layout.head_dim());
    out.resize(before + count);
    DSF_OK(source_->gather(static_cast<size_t>(l), wanted, std::span(out).subspan(before)));
  }
  return {};
}

std::vector<std::pair<std::string, std::string>> EngramRows::identity() const {
  auto pairs = source_->identity();
  pairs.emplace_back("engram_token_map_sha256", hasher_.map().digest());
  return pairs;
}

}  // namespace dsf::serve
