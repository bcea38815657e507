// One step: what the launches read of it, as it is or from a graph, and the logits back.
#include <algorithm>

#include "dsf/base/check.h"
#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"

namespace dsf::serve::cuda {

Result<std::span<const float>> CudaForward::run(std::span<const Row> rows, std::span<const std::vector<float>> engram,
                                                std::span<const int64_t> logit_rows) {
  const auto wanted = std::ssize(logit_rows);
  DSF_CHECK(!rows.empty() && std::ssize(rows) <= options_.max_rows && wanted <= options_.max_logit_rows,
            "a step within the limits");
  const bool captured = options_.graphs && !traced() && std::ssize(rows) <= kLargestBucket;
  n_ = captured ? std::min(row_bucket(std::ssize(rows)), options_.max_rows) : std::ssize(rows);
  n_logits_ = captured && wanted > 0 ? std::min(row_bucket(wanted), options_.max_logit_rows) : wanted;
  DSF_OK(upload_step(rows, engram, logit_rows));
  if (captured) {
    DSF_OK(graphs_.run(stream_, {n_, n_logits_}, [this] { return launch_all(); }));
  } else {
    DSF_OK(launch_all());
  }
  const size_t bytes = static_cast<size_t>(wanted * config_.vocab_size) * sizeof(float);
  DSF_OK(gpu::copy_to_host(stream_, logits_host_.data(), logits_, bytes));
  DSF_OK(wait());
  return std::span<const float>(logits_host_.as<float>(), bytes / sizeof(float));
}

// From the step block to the logits. Launches depend on n_, n_logits_ and, outside a graph, on longest_.
Result<void> CudaForward::launch_all() {
  const model::Config& c = config_;
  const Streams at_start = s_;  // a replay swaps nothing, so a recording must leave things as they were
  DSF_OK(ops::embed_cuda(weights_.embed.f32, weights_.embed.bf16, device_.tokens, s_.x, s_.pre, n_, c.hc_mult,
                         c.hidden_size, raw(stream_)));
  pending_ = false;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) DSF_OK(layer(i));
  DSF_OK(step_streams(nullptr, weights_.norm));
  s_ = at_start;
  if (n_logits_ == 0) return {};
  DSF_OK(ops::gather_rows_cuda(h_, device_.logit_rows, picked_, n_logits_, c.hidden_size, raw(stream_)));
  return head(picked_, n_logits_);
}

void CudaForward::fill_row(int64_t i, const Row& r, bool writes) {
  const int64_t end = r.position + 1;
  host_.tokens[i] = r.token;
  host_.positions[i] = r.position;
  host_.window_begin[i] = std::max<int64_t>(0, end - config_.sliding_window);
  host_.window_end[i] = end;
  host_.window_offset[i] = r.slot * ring_rows_;
  host_.window_place[i] = writes ? r.slot * ring_rows_ + r.position % ring_rows_ : -1;
  for (int64_t ratio = 1; ratio <= 2; ++ratio) {
    const StepBlock::PerRatio& p = host_.ratio[static_cast<size_t>(ratio)];
    const int64_t max_groups = options_.max_len / ratio, groups = end / ratio;
    const bool closes = end % ratio == 0;
    p.visible[i] = groups;
    p.first_position[i] = closes ? end - ratio : -1;
    p.group_place[i] = closes && writes ? r.slot * max_groups + groups - 1 : -1;
    p.group_offset[i] = r.slot * max_groups;
  }
}

// Rows that only fill a bucket repeat the first one without writing: they cost no weights that are not read anyway, and
// compute its values.
Result<void> CudaForward::upload_step(std::span<const Row> rows, std::span<const std::vector<float>> engram,
                                      std::span<const int64_t> logit_rows) {
  host_ = carve(step_host_.data(), n_);
  device_ = carve(step_device_.data(), n_);
  longest_ = 0;
  const auto real = std::ssize(rows);
  for (int64_t i = 0; i < n_; ++i) {
    const Row& r = rows[static_cast<size_t>(i < real ? i : 0)];
    longest_ = std::max(longest_, r.position + 1);
    fill_row(i, r, i < real);
  }
  std::fill_n(host_.logit_rows, n_, 0);
  std::copy(logit_rows.begin(), logit_rows.end(), host_.logit_rows);
  DSF_OK(gpu::copy_to_device(stream_, step_device_.data(), step_host_.data(), step_bytes(n_)));
  const auto width = static_cast<size_t>(config_.engram_columns() * config_.engram_head_dim);
  for (size_t t = 0; t < engram_.size(); ++t) {
    DSF_OK(gpu::copy_to_device(stream_, engram_[t], engram[t].data(), engram[t].size() * sizeof(float)));
    for (int64_t i = real; i < n_; ++i) {
      DSF_OK(gpu::copy_to_device(stream_, engram_[t] + static_cast<size_t>(i) * width, engram[t].data(),
                                 width * sizeof(float)));
    }
  }
  return {};
}

}  // namespace dsf::serve::cuda
