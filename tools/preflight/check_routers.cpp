// routers.attach and routers.image_bias. Source: engram.md 8.
#include <map>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/model/router.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

struct Counts {
  int64_t backbone = 0, backbone_total = 0, draft = 0, draft_total = 0;
  std::string text() const {
    return "main " + std::to_string(backbone) + "/" + std::to_string(backbone_total) + ", draft " +
           std::to_string(draft) + "/" + std::to_string(draft_total);
  }
};

// Names sorted, name, NUL, SHA-256 of the bytes: equal on both nodes when they route alike.
std::string combined_digest(const std::map<std::string, std::string>& tensors) {
  codec::Sha256 hash;
  for (const auto& [name, hex] : tensors) {
    hash.update(std::as_bytes(std::span(name)));
    const std::byte nul{0};
    hash.update({&nul, 1});
    if (const auto digest = codec::Digest::from_hex(hex)) hash.update(digest->bytes);
  }
  return hash.finish().hex();
}

std::string sha256_of(const safetensors::Checkpoint& c, const std::string& name) {
  const auto view = c.tensor(name);
  return view ? codec::sha256(view->bytes).hex() : "";
}

// A bias file that was copied into a folder whose index does not name it is never read: the usual way to lose the
// biases twice.
std::string hidden_file(const Context& c) {
  const auto files = io::list_files(c.plan.model);
  if (!files) return "";
  for (const std::string& f : *files) {
    if (!f.ends_with(".safetensors") || f.find('/') != std::string::npos) continue;
    bool opened = false;
    for (const safetensors::File& known : c.checkpoint->files()) opened = opened || known.path().filename() == f;
    if (opened) continue;
    const auto header = safetensors::read_header(c.plan.model / f);
    if (!header) continue;
    for (const safetensors::TensorInfo& t : header->tensors)
      if (t.name.ends_with(".ffn.gate.bias_vl")) return f;
  }
  return "";
}

}  // namespace

void check_router_attach(Context& c, Outcome& out) {
  if (!c.config || !c.checkpoint) return Context::skip(out, "needs config.valid and shards.open");
  Counts n;
  std::map<std::string, std::string> digests;
  for (const model::RouterPlace& place : model::router_places(*c.config)) {
    if (place.draft && !c.has_drafts()) continue;
    (place.draft ? n.draft_total : n.backbone_total) += 1;
    const auto router =
        model::attach_router(*c.checkpoint, c.sidecar ? &*c.sidecar : nullptr, place, c.config->hidden_size);
    if (!router) {
      out.add(finding_of(router.error()));
      continue;
    }
    (place.draft ? n.draft : n.backbone) += 1;
    digests[place.gate + ".bias"] = sha256_of(*c.checkpoint, place.gate + ".bias");
  }
  out.summary = n.text() + " attached";
  c.facts["routers_attached"] = n.text();
  c.facts["router_bias_sha256"] = combined_digest(digests);
}

void check_image_biases(Context& c, Outcome& out) {
  if (!c.config || !c.checkpoint) return Context::skip(out, "needs config.valid and shards.open");
  Counts n;
  bool beside = false;
  std::string first_missing;
  std::map<std::string, std::string> digests;
  for (const model::RouterPlace& place : model::router_places(*c.config)) {
    if (place.draft && !c.has_drafts()) continue;
    (place.draft ? n.draft_total : n.backbone_total) += 1;
    const std::string name = place.gate + ".bias_vl";
    const bool inside = c.checkpoint->contains(name);
    if (!inside && !(c.sidecar && c.sidecar->contains(name))) {
      if (first_missing.empty()) first_missing = name;
      continue;
    }
    beside = beside || !inside;
    (place.draft ? n.draft : n.backbone) += 1;
    digests[name] = sha256_of(inside ? *c.checkpoint : *c.sidecar, name);
  }
  out.summary = n.text() + (n.backbone + n.draft == 0 ? ", missing" : beside ? ", sidecar" : ", inline");
  c.facts["image_biases"] = out.summary;
  if (!digests.empty()) c.facts["image_bias_sha256"] = combined_digest(digests);
  if (n.backbone == n.backbone_total && n.draft == n.draft_total) return;
  if (n.backbone == n.backbone_total)  // draft blocks never see an image position
    return out.add(
        {Status::kNote, "draft_only", first_missing + ": absent; the draft blocks do not need it", "nothing to do"});
  const std::string hidden = hidden_file(c);
  const std::string why = hidden.empty() ? "" : "; " + hidden + " holds such tensors, but the index does not name it";
  const std::string fix = hidden.empty() ? "pass --bias-vl with a folder that has them (dsf-fetch of the release's "
                                           "biases), or --images off to serve text only"
                                         : "move " + hidden + " to a folder of its own and pass it as --bias-vl";
  const std::string what = n.backbone == 0
                               ? "every image-router bias is absent, images would be routed as text"
                               : "only " + n.text() + " image-router biases are there, images would be routed wrongly";
  const bool optional = !c.plan.images && n.backbone == 0;
  out.add({optional ? Status::kNote : Status::kFail, n.backbone == 0 ? "dropped" : "partial",
           first_missing + ": " + what + why, fix});
}

}  // namespace dsf::preflight
