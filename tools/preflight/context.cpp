#include "tools/preflight/context.h"

#include "dsf/codec/sha256.h"
#include "dsf/model/engram.h"

namespace dsf::preflight {

void Context::skip(Outcome& out, std::string why) {
  out.status = Status::kSkipped;
  out.summary = std::move(why);
}

void Context::read(const std::filesystem::path& file) {
  if (const auto digest = codec::sha256_file(file)) inputs.push_back({file.filename().string(), digest->hex()});
}

Finding finding_of(const Error& e) {
  return {Status::kFail, e.cls.empty() ? "error" : e.cls, e.subject + ": " + e.what,
          e.fix.empty() ? "see the documentation of this check" : e.fix};
}

void check_config(Context& c, Outcome& out) {
  const auto file = c.plan.model / "config.json";
  auto config = model::load_config(file);
  if (!config) {
    Error e = std::move(config).error();
    if (e.fix.empty()) e.fix = "fetch config.json of this checkpoint";
    return out.add(finding_of(e));
  }
  c.read(file);
  c.config = std::move(*config);
  out.summary = std::to_string(c.config->num_hidden_layers) + " layers, " +
                std::to_string(c.config->num_nextn_predict_layers) + " draft blocks";
  if (c.config->engram_layer_ids.empty()) return;
  auto layout = engram::Layout::create(model::engram_spec(*c.config));
  if (!layout) return out.add(finding_of(layout.error()));
  c.layout = std::move(*layout);
}

void check_shards(Context& c, Outcome& out) {
  auto checkpoint = safetensors::Checkpoint::open(c.plan.model);
  if (!checkpoint) return out.add(finding_of(checkpoint.error()));
  c.checkpoint = std::move(*checkpoint);
  const auto index = c.plan.model / "model.safetensors.index.json";
  std::error_code ec;
  if (std::filesystem::exists(index, ec))
    c.read(index);
  else
    out.add({Status::kWarning, "no_index",
             c.plan.model.string() + ": has no model.safetensors.index.json, a missing shard would not be noticed here",
             "fetch the index"});
  if (!c.plan.bias_vl.empty()) {
    auto sidecar = safetensors::Checkpoint::open(c.plan.bias_vl);
    if (!sidecar) return out.add(finding_of(sidecar.error()));
    c.sidecar = std::move(*sidecar);
  }
  out.summary = std::to_string(c.checkpoint->files().size()) + " shards, " +
                std::to_string(c.checkpoint->names().size()) + " tensors";
  c.facts["tensors"] = std::to_string(c.checkpoint->names().size());
}

}  // namespace dsf::preflight
