#include "tools/serve/backends/cuda/device_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace dsf::serve::cuda {

// Copies host arrays to the device. The first error sticks; what follows returns nullptr, and finish() reports it.
class Uploader {
 public:
  Uploader(DeviceModel& model, gpu::Stream& stream) : model_(model), stream_(stream) {}

  template <class T>
  const T* array(const std::vector<T>& host) {
    if (error_ || host.empty()) return nullptr;
    auto buffer = gpu::allocate(host.size() * sizeof(T));
    if (!buffer) return keep(std::move(buffer).error()), nullptr;
    const T* out = buffer->template as<T>();
    if (auto copied = gpu::copy_to_device(stream_, buffer->data(), host.data(), buffer->bytes()); !copied) return keep(std::move(copied).error()), nullptr;
    if (auto done = stream_.wait(); !done) return keep(std::move(done).error()), nullptr;  // the host array may go away
    model_.bytes_ += buffer->bytes();
    model_.owned_.push_back(std::move(*buffer));
    return out;
  }

  DeviceLinear linear(const Vec& w, int64_t out, int64_t in) {
    DeviceLinear l{nullptr, nullptr, out, in};
    if (w.empty()) return l;
    if (std::all_of(w.begin(), w.end(), [](float v) { return (std::bit_cast<uint32_t>(v) & 0xffffu) == 0; })) {
      std::vector<uint16_t> bf16(w.size());
      std::transform(w.begin(), w.end(), bf16.begin(), [](float v) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16); });
      l.bf16 = array(bf16);
    } else {
      l.f32 = array(w);
    }
    return l;
  }
  DeviceLinear linear(const Linear& l) { return linear(l.w, l.out, l.in); }

  ops::ExpertWeights expert(const Expert& e) {
    model_.max_expert_width = std::max(model_.max_expert_width, e.w1.out);
    return {array(e.w1.w), array(e.w3.w), array(e.w2.w), e.w1.out};
  }

  Result<void> finish() { return error_ ? Result<void>(fail(std::move(*error_))) : Result<void>{}; }

 private:
  void keep(Error e) { error_ = std::move(e); }
  DeviceModel& model_;
  gpu::Stream& stream_;
  std::optional<Error> error_;
};

namespace {

DeviceLayer upload_layer(Uploader& up, const model::Config& c, const LayerWeights& w) {
  DeviceLayer d;
  d.hc_attn = {up.array(w.hc_attn.fn), up.array(w.hc_attn.base), up.array(w.hc_attn.scale)};
  d.hc_ffn = {up.array(w.hc_ffn.fn), up.array(w.hc_ffn.base), up.array(w.hc_ffn.scale)};
  d.attn_norm = up.array(w.attn_norm);
  d.ffn_norm = up.array(w.ffn_norm);
  d.wq_a = up.linear(w.attn.wq_a);
  d.wq_b = up.linear(w.attn.wq_b);
  d.wkv = up.linear(w.attn.wkv);
  Vec groups;
  for (const Linear& g : w.attn.wo_a) groups.insert(groups.end(), g.w.begin(), g.w.end());
  d.wo_a = up.linear(groups, c.o_lora_rank, w.attn.wo_a.front().in);
  d.wo_b = up.linear(w.attn.wo_b);
  d.q_norm = up.array(w.attn.q_norm);
  d.kv_norm = up.array(w.attn.kv_norm);
  d.sink = up.array(w.attn.sink);
  if (w.compressor) {
    d.compress_wkv = up.linear(w.compressor->wkv);
    d.compress_wgate = up.linear(w.compressor->wgate);
    d.index_wk = up.linear(w.compressor->index_wk);
    d.compress_norm = up.array(w.compressor->norm);
    d.index_k_norm = up.array(w.compressor->index_k_norm);
  }
  if (w.indexer) {
    d.index_wq_b = up.linear(w.indexer->wq_b);
    Vec scaled = w.indexer->weights_proj.w;
    const float scale = 1.0f / (std::sqrt(static_cast<float>(c.index_head_dim)) * std::sqrt(static_cast<float>(c.index_n_heads)));
    for (float& v : scaled) v *= scale;
    d.index_weights = up.linear(scaled, w.indexer->weights_proj.out, w.indexer->weights_proj.in);
  }
  if (w.engram) {
    d.engram_wkv = up.linear(w.engram->wkv);
    d.engram_q = up.array(w.engram->q_weight);
    d.engram_k = up.array(w.engram->k_weight);
  }
  d.gate = up.array(w.ffn.gate.w);
  d.gate_bias = up.array(w.ffn.bias);
  std::vector<ops::ExpertWeights> experts;
  for (const Expert& e : w.ffn.experts) experts.push_back(up.expert(e));
  d.has_shared = w.ffn.shared_view.inter > 0;
  if (d.has_shared) experts.push_back(up.expert(w.ffn.shared));
  d.experts = up.array(experts);
  return d;
}

}  // namespace

Result<DeviceModel> DeviceModel::upload(const model::Config& config, const ModelWeights& weights) {
  DSF_TRY(gpu::Stream stream, gpu::Stream::create());
  DeviceModel out;
  Uploader up(out, stream);
  out.embed = up.linear(weights.embed);
  out.head = up.linear(weights.head);
  out.norm = up.array(weights.norm);
  for (const LayerWeights& w : weights.layers) out.layers.push_back(upload_layer(up, config, w));
  DSF_OK(up.finish());
  return out;
}

}  // namespace dsf::serve::cuda
