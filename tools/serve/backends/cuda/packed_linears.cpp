#include "tools/serve/backends/cuda/packed_linears.h"

#include <algorithm>

#include "dsf/base/check.h"
#include "tools/serve/backends/ops/exl3_gemm/exl3_gemm.h"

namespace dsf::serve::cuda {
namespace {

struct Needs {
  size_t workspace = 0, counters = 0;  // bytes
  void grow(size_t w, size_t c) { workspace = std::max(workspace, w), counters = std::max(counters, c * sizeof(uint32_t)); }
};

void add_group(Needs& needs, const std::vector<const DeviceLinear*>& group, const gpu::Facts& device, int64_t max_rows) {
  std::vector<ops::Exl3GemvArgs::Output> outputs;
  size_t blocks = 0;
  for (const DeviceLinear* l : group) {
    if (!l->packed()) continue;
    outputs.push_back({.w = l->exl3});
    blocks += static_cast<size_t>(l->out) / 128;
  }
  if (outputs.empty()) return;
  needs.grow(ops::exl3_gemv_workspace_bytes(outputs, ops::kExl3GemvRows, device.n_sms), blocks);
  if (max_rows > ops::kExl3GemvRows) needs.grow(ops::exl3_gemm_workspace_bytes(outputs, max_rows), 0);
}

Needs needs_of(const model::Config& c, const DeviceModel& m, const gpu::Facts& device, int64_t max_rows) {
  Needs needs;
  add_group(needs, {&m.head}, device, max_rows);
  for (const DeviceLayer& layer : m.layers) {
    for (const auto& group : launch_groups(layer)) add_group(needs, group, device, max_rows);
    if (layer.expert_bits == 0) continue;
    const int k = static_cast<int>(c.num_experts_per_tok), dim = static_cast<int>(c.hidden_size), inter = static_cast<int>(m.share.own.expert.size());
    const int few = static_cast<int>(std::min<int64_t>(max_rows, ops::kExl3MoeRows));
    needs.grow(ops::exl3_moe_workspace_bytes(few, k, dim, inter), ops::exl3_moe_counters(few, k, dim, inter));
    if (max_rows > few) needs.grow(ops::exl3_moe_many_workspace_bytes(max_rows, k, static_cast<int>(c.n_routed_experts), dim, inter), 0);
  }
  return needs;
}

}  // namespace

std::vector<std::vector<const DeviceLinear*>> launch_groups(const DeviceLayer& w) {
  std::vector<std::vector<const DeviceLinear*>> groups = {{&w.wq_a, &w.wkv, &w.compress_wkv, &w.compress_wgate}, {&w.wq_b, &w.index_wq_b}, {&w.wo_b}, {&w.index_wk}, {&w.engram_wkv}};
  for (size_t at = 0; at < w.wo_a_slices.size(); at += ops::kExl3GemvMatrices) {
    std::vector<const DeviceLinear*> slices;
    for (size_t i = at; i < std::min(at + ops::kExl3GemvMatrices, w.wo_a_slices.size()); ++i) slices.push_back(&w.wo_a_slices[i]);
    groups.push_back(std::move(slices));
  }
  return groups;
}

size_t PackedLinears::bytes(const model::Config& config, const DeviceModel& model, const gpu::Facts& device, int64_t max_rows) {
  const Needs needs = needs_of(config, model, device, max_rows);
  return needs.workspace + needs.counters;
}

Result<PackedLinears> PackedLinears::create(const model::Config& config, const DeviceModel& model, const gpu::Facts& device, int64_t max_rows, const gpu::Stream& stream) {
  const Needs needs = needs_of(config, model, device, max_rows);
  PackedLinears out;
  out.device_ = device;
  DSF_TRY(out.workspace_, gpu::allocate(needs.workspace));
  DSF_TRY(out.counters_, gpu::allocate(needs.counters));
  if (needs.counters != 0) DSF_OK(gpu::fill(stream, out.counters_.data(), 0, needs.counters));
  DSF_OK(stream.wait());
  return out;
}

Result<void> PackedLinears::run(const gpu::Stream& stream, const float* x, int64_t x_stride, std::span<const LinearTask> tasks, int64_t n_rows) const {
  ops::Exl3GemvArgs::Output outputs[ops::kExl3GemvMatrices];
  DSF_CHECK(!tasks.empty() && tasks.size() <= ops::kExl3GemvMatrices, "one launch group");
  for (size_t i = 0; i < tasks.size(); ++i)
    outputs[i] = {.w = tasks[i].l->exl3, .y = tasks[i].y, .y_stride = static_cast<int>(tasks[i].y_stride), .x_offset = static_cast<int>(tasks[i].x_offset)};
  const ops::Exl3GemvArgs a{.x = x, .x_stride = static_cast<int>(x_stride), .n_rows = static_cast<int>(n_rows), .outputs = std::span(outputs, tasks.size()),
                            .workspace = workspace_.data(), .counters = counters_.as<uint32_t>()};
  return n_rows <= ops::kExl3GemvRows ? ops::exl3_gemv(stream, device_, a) : ops::exl3_gemm(stream, device_, a);
}

Result<void> PackedLinears::experts(const gpu::Stream& stream, ops::Exl3MoeArgs a, int64_t n_experts, int max_bits) const {
  a.workspace = workspace_.data(), a.counters = counters_.as<uint32_t>();
  return a.n_rows <= ops::kExl3MoeRows ? ops::exl3_moe(stream, device_, a) : ops::exl3_moe_many(stream, device_, a, static_cast<int>(n_experts), max_bits);
}

}  // namespace dsf::serve::cuda
