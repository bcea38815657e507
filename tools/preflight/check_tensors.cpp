// tensors.table and tensors.scales: the checkpoint against the tensor table that the configuration gives. The engine
// refuses the same things through the same functions. Source: model.md 2, exl3.md 2.
#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/model/tensor_table.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {

Status status_of(model::Gravity g) {
  switch (g) {
    case model::Gravity::kNote:
      return Status::kNote;
    case model::Gravity::kWarning:
      return Status::kWarning;
    case model::Gravity::kFail:
      break;
  }
  return Status::kFail;
}

void add(Outcome& out, const std::vector<model::TableFinding>& findings) {
  for (const model::TableFinding& f : findings) out.add({status_of(f.gravity), f.cls, f.tensor + ": " + f.what, f.fix});
}

// The codebook that config.json promises; that the matrices agree among themselves is part of the table.
void check_declared_codebook(Context& c, Outcome& out) {
  const auto path = c.plan.model / "config.json";
  const auto text = io::read_text(path, 16 << 20);
  if (!text) return;  // config.valid says so
  const auto declared = model::declared_codebook(*text, path.string());
  if (!declared) return;
  const auto codebook = model::pack_codebook(c.checkpoint->names(), *declared);
  if (codebook) {
    if (!codebook->empty()) c.facts["codebook"] = *codebook;
  } else if (model::pack_codebook(c.checkpoint->names(), "")) {
    out.add(finding_of(codebook.error()));
  }
}

}  // namespace

void check_tensor_table(Context& c, Outcome& out) {
  if (!c.config || !c.checkpoint) return Context::skip(out, "needs config.valid and shards.open");
  // With packed files the tables may be absent, as they are from every EXL3 pack.
  const model::TableReport table = model::check_tensor_table(*c.config, *c.checkpoint, !c.plan.engram.empty());
  add(out, table.findings);
  check_declared_codebook(c, out);
  out.summary = std::to_string(table.n_native) + " tensors and " + std::to_string(table.n_packed) +
                " packed matrices as the configuration needs them";
  c.facts["packed_matrices"] = std::to_string(table.n_packed);
}

void check_scales(Context& c, Outcome& out) {
  if (!c.checkpoint) return Context::skip(out, "needs shards.open");
  const model::ScaleReport scales = model::check_block_scales(*c.checkpoint);
  add(out, scales.findings);
  out.summary = scales.n_tensors == 0 ? "no block scales in this checkpoint"
                                      : std::to_string(scales.n_tensors) + " tensors, " + format_bytes(scales.n_bytes);
}

}  // namespace dsf::preflight
