// One step: what the launches read of it, as it is or from a graph, and the logits back.
#include <algorithm>
#include <cstring>

#include "dsf/base/check.h"
#include "tools/serve/backends/cuda/cuda_forward.h"
#include "tools/serve/backends/cuda/forward_detail.h"
#include "tools/serve/backends/cuda/launch_choice.h"

namespace dsf::serve::cuda {

Result<CudaForward::Output> CudaForward::run(std::span<const Row> rows, const EngramWait& engram,
                                             const Wanted& wanted) {
  const int64_t n_wanted = std::ssize(wanted.rows), n_choices = std::ssize(wanted.choices);
  DSF_CHECK(!rows.empty() && std::ssize(rows) <= options_.max_rows && n_wanted <= options_.max_logit_rows &&
                wanted.n_host + n_choices == n_wanted,
            "a step within the limits");
  const bool captured = options_.graphs && !traced() && std::ssize(rows) <= kLargestBucket;
  n_ = captured ? std::min(row_bucket(std::ssize(rows)), options_.max_rows) : std::ssize(rows);
  n_logits_ = captured && n_wanted > 0 ? std::min(row_bucket(n_wanted), options_.max_logit_rows) : n_wanted;
  DSF_OK(upload_step(rows, wanted.rows));
  for (int64_t stage = 0; stage < n_stages(); ++stage) {
    if (stage > 0) DSF_OK(upload_engram(static_cast<size_t>(stage - 1), std::ssize(rows), engram));
    const auto record = [this, stage] { return launch_stage(stage); };
    DSF_OK(captured ? graphs_.run(stream_, {n_, n_logits_, stage}, record) : record());
  }
  if (n_choices > 0) DSF_OK(launch_choices(wanted));
  const auto floats = static_cast<size_t>(wanted.n_host * config_.vocab_size);
  if (floats > 0) DSF_OK(gpu::copy_to_host(stream_, logits_host_.data(), logits_, floats * sizeof(float)));
  DSF_OK(wait());
  return Output{{logits_host_.as<float>(), floats},
                {carve_choices(choice_host_.data(), options_.max_logit_rows).ids, static_cast<size_t>(n_choices)}};
}

CudaForward::ChoiceBlock CudaForward::carve_choices(void* base, int64_t n) {
  ChoiceBlock b{};
  b.choices = static_cast<ops::TokenChoice*>(base);
  b.ids = reinterpret_cast<int32_t*>(b.choices + n);
  return b;
}

Result<void> CudaForward::launch_choices(const Wanted& wanted) {
  const ChoiceBlock host = carve_choices(choice_host_.data(), options_.max_logit_rows),
                    device = carve_choices(choice_device_.data(), options_.max_logit_rows);
  std::copy(wanted.choices.begin(), wanted.choices.end(), host.choices);
  DSF_OK(gpu::copy_to_device(stream_, device.choices, host.choices, wanted.choices.size_bytes()));
  const bool filtered = std::any_of(wanted.choices.begin(), wanted.choices.end(), [](const ops::TokenChoice& c) {
    return c.temperature != 0 && (c.top_p < 1 || c.top_k > 0);
  });
  DSF_OK(ops::choose_token_cuda({.logits = logits_ + wanted.n_host * config_.vocab_size,
                                 .choices = device.choices,
                                 .ids = device.ids,
                                 .n_rows = std::ssize(wanted.choices),
                                 .vocab = config_.vocab_size},
                                filtered, choice_, raw(stream_)));
  return gpu::copy_to_host(stream_, host.ids, device.ids, wanted.choices.size() * sizeof(int32_t));
}

Result<std::span<const float>> CudaForward::fetch_logits(int64_t index) {
  const auto width = static_cast<size_t>(config_.vocab_size), at = static_cast<size_t>(index) * width;
  float* const host = logits_host_.as<float>() + at;
  DSF_OK(gpu::copy_to_host(stream_, host, logits_ + at, width * sizeof(float)));
  DSF_OK(stream_.wait());
  return std::span<const float>(host, width);
}

// A step is cut before every layer with an Engram table, whose rows may still be on their way from the disk when the
// layers before run.
int64_t CudaForward::n_stages() const { return 1 + std::ssize(engram_); }

// Launches depend on n_, n_logits_ and, outside a graph, on longest_.
Result<void> CudaForward::launch_stage(int64_t stage) {
  const model::Config& c = config_;
  const auto& tables = c.engram_layer_ids;
  const int64_t first = stage == 0 ? 0 : tables[static_cast<size_t>(stage - 1)];
  const bool last = stage + 1 == n_stages();
  const int64_t end = last ? c.num_hidden_layers : tables[static_cast<size_t>(stage)];
  if (stage == 0) {
    DSF_OK(ops::embed_cuda(weights_.embed.f32, weights_.embed.bf16, device_.tokens, s_.x, s_.pre, n_, c.hc_mult,
                           c.hidden_size, raw(stream_)));
  }
  if (!traced() || first == 0) pending_ = first > 0;  // a replay leaves no trace of the stage before
  const Streams at_start = s_;                        // nor does it swap
  for (int64_t i = first; i < end; ++i) DSF_OK(layer(i));
  if (last) DSF_OK(step_streams(nullptr, weights_.norm));
  s_ = at_start;
  if (!last || n_logits_ == 0) return {};
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
Result<void> CudaForward::upload_step(std::span<const Row> rows, std::span<const int64_t> logit_rows) {
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
  return gpu::copy_to_device(stream_, step_device_.data(), step_host_.data(), step_bytes(n_));
}

std::span<std::byte> CudaForward::engram_input(size_t table) {
  return {engram_host_[table].as<std::byte>(), engram_host_[table].bytes()};
}

Result<void> CudaForward::upload_engram(size_t table, int64_t real, const EngramWait& engram) {
  DSF_OK(engram(table));
  const auto width = static_cast<size_t>(config_.engram_columns() * engram_record_bytes());
  auto* const host = engram_host_[table].as<std::byte>();
  for (int64_t i = real; i < n_; ++i) std::memcpy(host + static_cast<size_t>(i) * width, host, width);
  return gpu::copy_to_device(stream_, engram_[table].records, host, static_cast<size_t>(n_) * width);
}

}  // namespace dsf::serve::cuda
