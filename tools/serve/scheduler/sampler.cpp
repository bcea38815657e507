#include "tools/serve/scheduler/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "dsf/base/check.h"
#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"

namespace dsf::serve {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

}  // namespace

uint64_t seed_for(std::span<const int32_t> prompt, uint64_t salt) {
  std::string text;
  for (const int32_t id : prompt) text.append(text.empty() ? "" : ",").append(std::to_string(id));
  text.append("|").append(std::to_string(salt));
  const codec::Digest digest = codec::sha256(text);
  return load_le<uint64_t>(digest.bytes.data()) & INT64_MAX;
}

uint64_t seed_of_choice(uint64_t seed, uint64_t choice) {
  return choice == 0 ? seed : mix(seed + choice * 0x9E3779B97F4A7C15u) & INT64_MAX;
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt) : params_(std::move(params)) {
  if (params_.repetition_penalty != 1) {
    for (const int32_t id : prompt) seen_.try_emplace(id, 0);
  }
}

void Sampler::commit(int32_t id) { ++seen_[id]; }

bool Sampler::rewrites_logits() const {
  return !params_.logit_bias.empty() || params_.repetition_penalty != 1 || params_.frequency_penalty != 0 ||
         params_.presence_penalty != 0;
}

void Sampler::apply_bias_and_penalties() {
  const auto inside = [&](int32_t id) { return id >= 0 && static_cast<size_t>(id) < row_.size(); };
  for (const auto& [id, bias] : params_.logit_bias) {
    if (inside(id)) row_[static_cast<size_t>(id)] += bias;
  }
  if (params_.repetition_penalty == 1 && params_.frequency_penalty == 0 && params_.presence_penalty == 0) return;
  for (const auto& [id, count] : seen_) {
    if (!inside(id)) continue;
    double& x = row_[static_cast<size_t>(id)];
    x = x > 0 ? x / params_.repetition_penalty : x * params_.repetition_penalty;
    x -= params_.frequency_penalty * static_cast<double>(count) + (count > 0 ? params_.presence_penalty : 0.0);
  }
}

Result<Choice> Sampler::pick(std::span<const float> logits, uint64_t position, std::span<const int32_t> masked,
                             const std::vector<int32_t>* allowed) {
  row_.assign(logits.begin(), logits.end());
  DSF_OK(check_finite(logits));
  if (rewrites_logits()) apply_bias_and_penalties();
  for (const int32_t id : masked) {
    if (id >= 0 && static_cast<size_t>(id) < row_.size()) row_[static_cast<size_t>(id)] = kMinusInfinity;
  }
  if (allowed != nullptr) {
    restrict_to(*allowed);
  } else {
    order_.resize(row_.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
  const auto weighs = [&](int32_t id) { return row_[static_cast<size_t>(id)] != kMinusInfinity; };
  if (std::none_of(order_.begin(), order_.end(), weighs))
    return fail(Code::kBug, "sampler", "no token is left to choose from", {}, "bad_logits");
  const int32_t id = chooser_.choose(row_, order_, choice_params(position));
  if (params_.top_logprobs >= 0) return describe(logits, id, params_.top_logprobs);
  return Choice{id, 0, {}};
}

ChoiceParams Sampler::choice_params(uint64_t position) const {
  return {.temperature = params_.temperature,
          .top_p = params_.top_p,
          .min_p = params_.min_p,
          .top_k = params_.top_k,
          .seed = params_.seed,
          .position = position};
}

// Only the allowed ids stay candidates; everything else weighs nothing.
void Sampler::restrict_to(const std::vector<int32_t>& allowed) {
  std::vector<double> values;
  order_.clear();
  for (const int32_t id : allowed) {
    if (id < 0 || static_cast<size_t>(id) >= row_.size()) continue;
    order_.push_back(id);
    values.push_back(row_[static_cast<size_t>(id)]);
  }
  std::fill(row_.begin(), row_.end(), kMinusInfinity);
  for (size_t i = 0; i < order_.size(); ++i) row_[static_cast<size_t>(order_[i])] = values[i];
}

Choice describe(std::span<const float> logits, int32_t chosen, int n_top) {
  DSF_CHECK(chosen >= 0 && static_cast<size_t>(chosen) < logits.size(), "token outside the row");
  const double top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float x : logits) total += std::exp(static_cast<double>(x) - top);
  const double log_total = top + std::log(total);
  Choice out{chosen, static_cast<double>(logits[static_cast<size_t>(chosen)]) - log_total, {}};
  if (n_top <= 0) return out;
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t n = std::min(static_cast<size_t>(n_top), ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (size_t i = 0; i < n; ++i)
    out.top.push_back({ids[i], static_cast<double>(logits[static_cast<size_t>(ids[i])]) - log_total});
  return out;
}

}  // namespace dsf::serve
