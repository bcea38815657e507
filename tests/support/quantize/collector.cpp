#include "tests/support/quantize/collector.h"

#include "dsf/base/check.h"

namespace dsf::quantize {
namespace {

// Suffixes that read what another one reads. A draft block's wkv is not among them: it also reads the taps.
struct Shared {
  std::string_view suffix, as;
};
constexpr Shared kShared[] = {{".w3", ".w1"},
                              {".attn.wkv", ".attn.wq_a"},
                              {".attn.compressor.wkv", ".attn.wq_a"},
                              {".attn.compressor.wgate", ".attn.wq_a"},
                              {".attn.indexer.wq_b", ".attn.wq_b"}};

}  // namespace

std::string input_key(std::string_view name) {
  for (const Shared& s : kShared) {
    if (!name.ends_with(s.suffix) || (name.starts_with("mtp.") && s.suffix == ".attn.wkv")) continue;
    return std::string(name.substr(0, name.size() - s.suffix.size())) + std::string(s.as);
  }
  return std::string(name);
}

Collector::Collector(const serve::ModelWeights& m) {
  watch(m.head, "head");
  for (size_t i = 0; i < m.layers.size(); ++i) {
    const serve::LayerWeights& w = m.layers[i];
    const std::string prefix = "layers." + std::to_string(i) + ".";
    watch_block(w, prefix);
    if (w.compressor) watch(w.compressor->index_wk, prefix + "attn.indexer.wk");
    if (w.engram) watch(w.engram->wkv, prefix + "engram.wkv");
  }
  if (!m.draft) return;
  watch(m.draft->main_proj, "mtp.0.main_proj");
  for (size_t i = 0; i < m.draft->stages.size(); ++i) {
    const std::string prefix = "mtp." + std::to_string(i) + ".";
    watch_block(m.draft->stages[i], prefix);
    watch(m.draft->stages[i].attn.wkv, prefix + "attn.wkv");
  }
}

void Collector::watch(const serve::Linear& l, const std::string& name) {
  const auto [at, added] = by_name_.try_emplace(name, l.in);
  DSF_CHECK(added, "a matrix is watched twice");
  by_place_.emplace(l.w.data(), &at->second);
}

void Collector::watch_block(const serve::LayerWeights& w, const std::string& prefix) {
  watch(w.attn.wq_a, prefix + "attn.wq_a");
  watch(w.attn.wq_b, prefix + "attn.wq_b");
  for (size_t g = 0; g < w.attn.wo_a.size(); ++g)
    watch(w.attn.wo_a[g], prefix + "attn.wo_a.slice." + std::to_string(g));
  watch(w.attn.wo_b, prefix + "attn.wo_b");
  watch_experts(w.ffn, prefix + "ffn.");
}

void Collector::watch_experts(const serve::MoeWeights& w, const std::string& prefix) {
  const auto watch_one = [&](const serve::Expert& e, const std::string& name) {
    watch(e.w1, name + ".w1");
    watch(e.w2, name + ".w2");
  };
  for (size_t e = 0; e < w.experts.size(); ++e) watch_one(w.experts[e], prefix + "experts." + std::to_string(e));
  if (w.shared.w1.out > 0) watch_one(w.shared, prefix + "shared_experts");
}

void Collector::inputs(const float* w, const float* x, int64_t x_stride, int64_t n_rows, int64_t in) {
  const auto at = by_place_.find(w);
  if (at == by_place_.end()) return;
  DSF_CHECK(at->second->in() == in, "the matrix has other inputs");
  at->second->add(x, n_rows, x_stride);
}

double Collector::n_rows(std::string_view name) const { return by_name_.at(input_key(name)).n_rows(); }

exl3::Hessian Collector::moments(std::string_view name) const {
  const std::string key = input_key(name);
  exl3::Hessian own = by_name_.at(key);
  const size_t routed = key.find(".experts.");
  if (routed == std::string::npos) return own;
  const auto in = static_cast<double>(own.in());
  if (key.ends_with(".w2")) {
    own.add_uncorrelated(in / 4);
  } else if (const auto layer = by_name_.find(key.substr(0, routed) + ".shared_experts.w1"); layer != by_name_.end()) {
    own.add_mean(layer->second, in);
  }
  return own;
}

}  // namespace dsf::quantize
