// The made model in the release's own layout.
#include "dsf/exl3_pack/folder.h"
#include "dsf/io/file.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "encode.h"
#include "plan.h"
#include "small_files.h"
#include "weights.h"

namespace dsf::made_checkpoint {

int shard_of(const model::Config& config, std::string_view name) {
  for (size_t i = 0; i < config.engram_layer_ids.size(); ++i) {
    if (name.starts_with("layers." + std::to_string(config.engram_layer_ids[i]) + ".engram."))
      return kBodyShards + 1 + static_cast<int>(i);
  }
  if (name.starts_with("mtp.") || name.starts_with("vision.") || name.starts_with("aligner.") ||
      name.starts_with("image_"))
    return 4;
  if (name == "norm.weight" || name.starts_with("head")) return 3;
  if (!name.starts_with("layers.")) return 1;
  const int layer = std::stoi(std::string(name.substr(7)));
  return layer <= 1 ? 1 : layer <= 3 ? 2 : 3;
}

Result<void> write_native(const std::filesystem::path& dir, const Options& options) {
  DSF_TRY(const model::Config c, config(options));
  DSF_TRY(exl3_pack::FolderWriter folder, exl3_pack::FolderWriter::create(dir));
  for (const model::Weight& w : model::all_weights(c)) {
    std::vector<float> values = random_values(w, c, options.seed);
    folder.add(shard_of(c, w.name), encode(w, values));
  }
  DSF_OK(write_small_files(dir));
  DSF_OK(io::write_file_atomic(dir / "config.json", config_json(options)));
  return folder.finish();
}

}  // namespace dsf::made_checkpoint
