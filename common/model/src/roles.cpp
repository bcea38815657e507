#include <algorithm>

#include "dsf/model/config.h"

namespace dsf::model {
namespace {
int64_t greatest_at_or_below(const std::vector<int64_t>& ascending, int64_t id) {
  const auto it = std::upper_bound(ascending.begin(), ascending.end(), id);
  return it == ascending.begin() ? -1 : *(it - 1);
}
}  // namespace

std::vector<LayerRole> layer_roles(const Config& c) {
  std::vector<LayerRole> roles(static_cast<size_t>(c.num_hidden_layers));
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    LayerRole& r = roles[static_cast<size_t>(i)];
    r.engram = c.engram_index(i);
    r.ratio = c.compress_ratios[static_cast<size_t>(i)];
    if (r.ratio == 0) continue;
    r.kv_source = greatest_at_or_below(c.kv_source_layer_ids, i);
    r.index_source = greatest_at_or_below(c.index_source_layer_ids, i);
    r.owns_kv = r.kv_source == i;
    r.owns_index = r.index_source == i;
    r.candidate_source = i == c.candidate_source_layer_id;
    r.candidate_limited = r.owns_index && c.candidate_source_layer_id >= 0 && i > c.candidate_source_layer_id;
  }
  return roles;
}

}  // namespace dsf::model
