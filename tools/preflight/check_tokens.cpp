// tokenizer.special and engram.token_map. Source: serving.md 1.4, engram.md 2.
#include "dsf/model/engram.h"
#include "dsf/tokenizer/prompt.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {

void check_special_tokens(Context& c, Outcome& out) {
  if (!c.config) return Context::skip(out, "needs config.valid");
  const auto file = c.plan.model / "tokenizer.json";
  const auto tokenizer = tokenizer::Tokenizer::load(file);
  if (!tokenizer) {
    Error e = tokenizer.error();
    if (e.fix.empty()) e.fix = "fetch tokenizer.json of this checkpoint";
    return out.add(finding_of(e));
  }
  c.read(file);
  const auto ids = tokenizer::ControlIds::find(*tokenizer);
  if (!ids) {
    Error e = ids.error();
    if (e.fix.empty()) e.fix = "use the tokenizer.json of this checkpoint";
    return out.add(finding_of(e));
  }
  using tokenizer::Control;
  struct Row {
    const char* key;
    int64_t configured;
    Control control;
  };
  const auto at = [&](Control control) { return static_cast<int64_t>((*ids)[control]); };
  for (const Row& r : {Row{"bos_token_id", c.config->bos_token_id, Control::kBos},
                       Row{"eos_token_id", c.config->eos_token_id, Control::kEos},
                       Row{"image_token_id", c.config->image_token_id, Control::kImage}}) {
    if (r.configured < 0 || at(r.control) == r.configured) continue;
    const std::string spelling(tokenizer::control_text(r.control));
    const std::string have =
        at(r.control) < 0 ? "has no " + spelling : "has " + spelling + " at " + std::to_string(at(r.control));
    out.add({r.control == Control::kImage && !c.plan.images ? Status::kWarning : Status::kFail, "token_id",
             file.string() + ": " + have + ", config.json says " + r.key + " " + std::to_string(r.configured),
             "use tokenizer.json and config.json of one revision"});
  }
  if (tokenizer->id_limit() > c.config->vocab_size)
    out.add({Status::kFail, "vocab_size",
             file.string() + ": has ids up to " + std::to_string(tokenizer->id_limit() - 1) + ", the embedding has " +
                 std::to_string(c.config->vocab_size) + " rows",
             "use tokenizer.json and config.json of one revision"});
  out.summary = std::to_string(tokenizer->n_tokens()) + " tokens";
}

void check_token_map(Context& c, Outcome& out) {
  if (!c.config) return Context::skip(out, "needs config.valid");
  if (c.config->engram_layer_ids.empty()) return Context::skip(out, "this model has no Engram tables");
  const auto map = model::load_token_map(c.plan.model, *c.config);
  if (!map) return out.add(finding_of(map.error()));
  out.summary = std::to_string(map->size()) + " ids fold to " + std::to_string(map->compressed_size());
  c.facts["engram_token_map_sha256"] = map->digest();
}

}  // namespace dsf::preflight
