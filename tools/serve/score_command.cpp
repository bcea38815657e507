#include "tools/serve/score_command.h"

namespace dsf::serve {

void add_score_flags(cli::Command& command, RawScore& raw) {
  command.group("Model").option("--model", raw.model, "checkpoint folder: config.json, shards", "DIR");
  command.option("--engram", raw.engram, "folder of dsf-pack-engram; without it the checkpoint's own tables", "DIR");
  command.choice("--backend", raw.backend, {"cpu", "cuda"}, "what computes");
  command.option("--device", raw.device, "number of the GPU", 0, 255);
  command.flag("--no-cache-fake-quant", raw.no_fake_quant, "plain f32 caches, for comparisons");
  command.option("--chunk", raw.chunk, "tokens of one step; does not change results", 1, 65536);
  command.group("What to score").option("--token-ids", raw.token_ids, "JSON array or whitespace-separated ids", "FILE");
  command.option("--text", raw.text, "UTF-8 text, tokenised behind the BOS token", "FILE");
  command.flag("--restart-at-bos", raw.restart_at_bos, "each BOS token begins a context of its own");
  command.option("--logits", raw.logits, "full f32 logits and the ids, as safetensors", "FILE");
  command.common(raw.common, cli::kJson | cli::kJobs);
}

ScoreOptions score_options(const RawScore& raw) {
  ScoreOptions out;
  out.model_dir = raw.model;
  out.engram_dir = raw.engram;
  out.token_ids_file = raw.token_ids;
  out.text_file = raw.text;
  out.logits_out = raw.logits;
  out.json = raw.common.json;
  out.restart_at_bos = raw.restart_at_bos;
  out.fake_quant = !raw.no_fake_quant;
  out.chunk = raw.chunk;
  out.threads = raw.common.jobs;
  out.backend = raw.backend;
  out.device = static_cast<int>(raw.device);
  return out;
}

}  // namespace dsf::serve
