#include "tools/serve/engine/choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace dsf::serve {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

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

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 31;
  return x;
}

double uniform(uint64_t seed, uint64_t position, uint64_t id) { return uniform_of(mix_position(seed, position), id); }

Result<void> check_finite(std::span<const float> logits) {
  const bool finite = std::none_of(logits.begin(), logits.end(), [](float x) {
    return std::isnan(x) || x == std::numeric_limits<float>::infinity();
  });
  if (!finite || logits.empty()) return fail(Code::kBug, "engine", "logits are not finite", {}, "bad_logits");
  return {};
}

size_t Chooser::keep_by_top_k(int64_t top_k) const {
  const size_t n = order_->size();
  return top_k <= 0 ? n : std::min(n, static_cast<size_t>(top_k));
}

// Sorts the first n candidates into place; the rest follows in no order.
void Chooser::sort_to(size_t n) {
  const auto before = [&](int32_t a, int32_t b) {
    const double x = row_[static_cast<size_t>(a)], y = row_[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  n = std::min(n, order_->size());
  if (n <= sorted_) return;
  const auto from = order_->begin() + static_cast<std::ptrdiff_t>(sorted_),
             to = order_->begin() + static_cast<std::ptrdiff_t>(n);
  if (n < order_->size()) std::nth_element(from, to, order_->end(), before);
  std::sort(from, to, before);
  sorted_ = n;
}

// The smallest prefix of the first k candidates whose mass reaches top_p. Sorts only as far as it has to look.
size_t Chooser::keep_by_top_p(size_t k, double top, const ChoiceParams& params) {
  const double temperature = std::max(params.temperature, 1e-6);
  if (k < order_->size()) sort_to(k);
  if (params.top_p >= 1) return k;
  const auto weight = [&](int32_t id) { return std::exp((row_[static_cast<size_t>(id)] - top) / temperature); };
  double total = 0;
  if (k == order_->size()) {
    // In order of ids, so that the sum does not depend on how far the sort went.
    for (const double x : row_) total += std::exp((x - top) / temperature);
  } else {
    for (size_t i = 0; i < k; ++i) total += weight((*order_)[i]);
  }
  double cumulative = 0;
  for (size_t i = 0; i < k; ++i) {
    if (i >= sorted_) sort_to(std::max<size_t>(256, sorted_ * 4));
    cumulative += weight((*order_)[i]) / total;
    if (cumulative >= params.top_p) return i + 1;
  }
  return k;
}

int32_t Chooser::choose(std::span<const double> row, std::vector<int32_t>& candidates, const ChoiceParams& params) {
  row_ = row;
  order_ = &candidates;
  sorted_ = 0;
  const auto best_id = std::max_element(candidates.begin(), candidates.end(), [&](int32_t a, int32_t b) {
    return row[static_cast<size_t>(a)] < row[static_cast<size_t>(b)];  // the first of equals, which is the lowest id
  });
  if (params.temperature == 0) return *best_id;
  const double temperature = std::max(params.temperature, 1e-6), top = row[static_cast<size_t>(*best_id)];
  const size_t kept = keep_by_top_p(keep_by_top_k(params.top_k), top, params);
  const double floor = params.min_p > 0 ? top / temperature + std::log(params.min_p) : kMinusInfinity;
  const uint64_t key = mix_position(params.seed, params.position);
  int32_t chosen = -1;
  double best = kMinusInfinity, best_logit = kMinusInfinity;
  for (size_t i = 0; i < kept; ++i) {
    const int32_t id = candidates[i];
    const double x = row[static_cast<size_t>(id)];
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

Result<int32_t> Chooser::choose(std::span<const float> logits, const ChoiceParams& params) {
  DSF_OK(check_finite(logits));
  if (*std::max_element(logits.begin(), logits.end()) == -std::numeric_limits<float>::infinity())
    return fail(Code::kBug, "sampler", "no token is left to choose from", {}, "bad_logits");
  own_row_.assign(logits.begin(), logits.end());
  own_candidates_.resize(logits.size());
  std::iota(own_candidates_.begin(), own_candidates_.end(), 0);
  return choose(own_row_, own_candidates_, params);
}

}  // namespace dsf::serve
