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

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 31;
  return x;
}

uint64_t mix_position(uint64_t seed, uint64_t position) {
  return mix(mix(seed + 0x9E3779B97F4A7C15u) ^ (position * 0xD1B54A32D192ED03u));
}

double uniform_of(uint64_t position_key, uint64_t id) {
  const uint64_t bits = mix(position_key ^ id) >> 11;
  const double u = static_cast<double>(bits) * 0x1p-53 + 0x1p-54;
  return u < 1.0 ? u : 1.0 - 0x1p-53;  // 1.0 would be infinite noise and win at any logit
}

double gumbel(uint64_t position_key, uint64_t id) { return -std::log(-std::log(uniform_of(position_key, id))); }

}  // namespace

double uniform(uint64_t seed, uint64_t position, uint64_t id) { return uniform_of(mix_position(seed, position), id); }

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
  const bool finite = std::none_of(logits.begin(), logits.end(), [](float x) {
    return std::isnan(x) || x == std::numeric_limits<float>::infinity();
  });
  if (!finite || logits.empty()) return fail(Code::kBug, "engine", "logits are not finite", {}, "bad_logits");
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
  const auto best = std::max_element(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    return row_[static_cast<size_t>(a)] < row_[static_cast<size_t>(b)];  // the first of equals, which is the lowest id
  });
  const double top = best == order_.end() ? kMinusInfinity : row_[static_cast<size_t>(*best)];
  if (top == kMinusInfinity) return fail(Code::kBug, "sampler", "no token is left to choose from", {}, "bad_logits");
  const int32_t id = params_.temperature == 0 ? *best : draw(position, top);
  if (params_.top_logprobs >= 0) return describe(logits, id, params_.top_logprobs);
  return Choice{id, 0, {}};
}

size_t Sampler::keep_by_top_k() const {
  const size_t n = order_.size();
  return params_.top_k <= 0 ? n : std::min(n, static_cast<size_t>(params_.top_k));
}

// Sorts the first n candidates into place; the rest follows in no order.
void Sampler::sort_to(size_t n) {
  const auto before = [&](int32_t a, int32_t b) {
    const double x = row_[static_cast<size_t>(a)], y = row_[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  n = std::min(n, order_.size());
  if (n <= sorted_) return;
  const auto from = order_.begin() + static_cast<std::ptrdiff_t>(sorted_),
             to = order_.begin() + static_cast<std::ptrdiff_t>(n);
  if (n < order_.size()) std::nth_element(from, to, order_.end(), before);
  std::sort(from, to, before);
  sorted_ = n;
}

// The smallest prefix of the first k candidates whose mass reaches top_p. Sorts only as far as it has to look.
size_t Sampler::keep_by_top_p(size_t k, double top, double temperature) {
  if (k < order_.size()) sort_to(k);
  if (params_.top_p >= 1) return k;
  const auto weight = [&](int32_t id) { return std::exp((row_[static_cast<size_t>(id)] - top) / temperature); };
  double total = 0;
  if (k == order_.size()) {
    // In order of ids, so that the sum does not depend on how far the sort went.
    for (const double x : row_) total += std::exp((x - top) / temperature);
  } else {
    for (size_t i = 0; i < k; ++i) total += weight(order_[i]);
  }
  double cumulative = 0;
  for (size_t i = 0; i < k; ++i) {
    if (i >= sorted_) sort_to(std::max<size_t>(256, sorted_ * 4));
    cumulative += weight(order_[i]) / total;
    if (cumulative >= params_.top_p) return i + 1;
  }
  return k;
}

int32_t Sampler::draw(uint64_t position, double top) {
  const double temperature = std::max(params_.temperature, 1e-6);
  sorted_ = 0;
  const size_t kept = keep_by_top_p(keep_by_top_k(), top, temperature);
  const double floor = params_.min_p > 0 ? top / temperature + std::log(params_.min_p) : kMinusInfinity;
  const uint64_t key = mix_position(params_.seed, position);
  int32_t chosen = -1;
  double best = kMinusInfinity, best_logit = kMinusInfinity;
  for (size_t i = 0; i < kept; ++i) {
    const int32_t id = order_[i];
    const double x = row_[static_cast<size_t>(id)];
    if (x == kMinusInfinity || x / temperature < floor) continue;
    const double score = x / temperature + gumbel(key, static_cast<uint64_t>(id));
    // Ties go to the earlier candidate in (logit descending, id ascending) order; an unsorted tail needs this
    // comparison.
    const bool earlier = x > best_logit || (x == best_logit && id < chosen);
    if (chosen < 0 || score > best || (score == best && earlier)) {
      chosen = id;
      best = score;
      best_logit = x;
    }
  }
  return chosen;
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
