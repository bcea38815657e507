#include "dsf/engram/layout.h"

#include <algorithm>
#include <array>
#include <set>

#include "dsf/base/numeric.h"

namespace dsf::engram {
namespace {

__extension__ typedef unsigned __int128 u128;

// NumPy's default_rng(seed).integers(0, n): SeedSequence entropy mixing, PCG64 (XSL-RR 128/64), Lemire's bounded draw. The tables
// were trained with these very numbers, so the generator is part of the format.
class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), 0, 0};
    for (size_t i = 0; i < 4; ++i) pool_[i] = hash_mix(entropy[i]);
    for (size_t src = 0; src < 4; ++src)
      for (size_t dst = 0; dst < 4; ++dst)
        if (src != dst) pool_[dst] = mix(pool_[dst], hash_mix(pool_[src]));
  }

  std::array<uint64_t, 4> words() const {
    std::array<uint32_t, 8> half{};
    uint32_t g = 0x8b51f9ddu;
    for (size_t i = 0; i < 8; ++i) {
      uint32_t v = pool_[i % 4] ^ g;
      g *= 0x58f38dedu;
      v *= g;
      half[i] = v ^ (v >> 16);
    }
    std::array<uint64_t, 4> out{};
    for (size_t i = 0; i < 4; ++i) out[i] = half[2 * i] | (uint64_t{half[2 * i + 1]} << 32);
    return out;
  }

 private:
  uint32_t hash_mix(uint32_t v) {
    v ^= h_;
    h_ *= 0x931e8875u;
    v *= h_;
    return v ^ (v >> 16);
  }
  static uint32_t mix(uint32_t x, uint32_t y) {
    const uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ (r >> 16);
  }
  std::array<uint32_t, 4> pool_{};
  uint32_t h_ = 0x43b0d7e5u;
};

class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const auto w = SeedSequence(seed).words();
    inc_ = ((u128{w[2]} << 64 | w[3]) << 1) | 1;
    step();
    state_ += u128{w[0]} << 64 | w[1];
    step();
  }
  uint64_t next() {
    step();
    const auto x = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(x, static_cast<int>(state_ >> 122));
  }
  // Uniform in [0, n), n > 2^32 (NumPy takes another path below that).
  uint64_t below(uint64_t n) {
    u128 m = u128{next()} * n;
    if (static_cast<uint64_t>(m) < n) {
      const uint64_t threshold = (0 - n) % n;
      while (static_cast<uint64_t>(m) < threshold) m = u128{next()} * n;
    }
    return static_cast<uint64_t>(m >> 64);
  }

 private:
  void step() { state_ = state_ * (u128{0x2360ED051FC65DA4u} << 64 | 0x4385DF649FCCF645u) + inc_; }
  u128 state_ = 0, inc_ = 0;
};

uint64_t power_mod(uint64_t base, uint64_t exponent, uint64_t n) {
  u128 result = 1, b = base % n;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = result * b % n;
    b = b * b % n;
  }
  return static_cast<uint64_t>(result);
}

Unexpected bad(std::string what) {
  return fail(Code::kContent, "config.json", std::move(what), "use the config.json that belongs to these Engram tables", "engram_config");
}

struct Bound {
  const char* name;
  int64_t value, min, max;
};

// The limits keep every later product inside 63 bits: compressed id * multiplier, rows * row bytes, prime sums.
Result<void> check_spec(const Spec& s) {
  for (const Bound& b : {Bound{"engram_vocab_size", s.hash_vocab_size, 2, int64_t{1} << 31},
                         Bound{"engram_max_ngram_size", s.max_ngram_size, 2, 16},
                         Bound{"engram_n_heads", s.n_heads, 1, 256},
                         Bound{"engram_head_dim", s.head_dim, 32, 1 << 16},
                         Bound{"vocab_size", s.vocab_size, 1, int64_t{1} << 28},
                         Bound{"engram_compressed_vocab_size", s.compressed_vocab_size, 1, s.vocab_size},
                         Bound{"engram_pad_token_id", s.pad_token_id, 0, s.vocab_size - 1}})
    if (b.value < b.min || b.value > b.max)
      return bad(std::string(b.name) + " is " + std::to_string(b.value) + ", allowed are " + std::to_string(b.min) + " to " + std::to_string(b.max));
  if (s.head_dim % 32 != 0) return bad("engram_head_dim " + std::to_string(s.head_dim) + " is not a multiple of 32");
  if (s.layer_ids.empty()) return bad("engram_layer_ids is empty, this model has no Engram tables");
  if (s.layer_ids.size() > 64) return bad("engram_layer_ids has more than 64 entries");
  if (s.layer_ids.size() != s.num_embeddings.size()) return bad("engram_num_embeddings and engram_layer_ids have different lengths");
  // Every order of every layer walks over all earlier primes: hostile sizes would search for minutes. The release has 48 columns.
  if (static_cast<int64_t>(s.layer_ids.size()) * (s.max_ngram_size - 1) * s.n_heads > 1024) return bad("the Engram layers have more than 1024 hash columns together");
  if (std::set<int64_t>(s.layer_ids.begin(), s.layer_ids.end()).size() != s.layer_ids.size()) return bad("engram_layer_ids repeats a layer");
  for (const int64_t id : s.layer_ids)
    if (id < 0 || id > 100000) return bad("engram_layer_ids holds " + std::to_string(id));
  return {};
}

}  // namespace

bool is_prime(uint64_t n) {
  constexpr std::array<uint64_t, 12> kSmall{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (n < 2) return false;
  for (const uint64_t p : kSmall)
    if (n % p == 0) return n == p;
  uint64_t odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const uint64_t base : {2u, 7u, 61u}) {  // exact below 4.7e9
    if (base % n == 0) continue;
    uint64_t x = power_mod(base, odd, n);
    bool witness = x != 1 && x != n - 1;
    for (int i = 1; i < twos && witness; ++i) {
      x = static_cast<uint64_t>(u128{x} * x % n);
      witness = x != n - 1;
    }
    if (witness) return false;
  }
  return true;
}

std::vector<int64_t> hash_multipliers(int64_t layer_id, int64_t compressed_vocab_size, int64_t max_ngram_size) {
  const int64_t bound = std::max<int64_t>(1, INT64_MAX / compressed_vocab_size / 2);
  Pcg64 rng(static_cast<uint64_t>(10007 * layer_id));
  std::vector<int64_t> out;
  for (int64_t i = 0; i < max_ngram_size; ++i) out.push_back(2 * static_cast<int64_t>(rng.below(static_cast<uint64_t>(bound))) + 1);
  return out;
}

Result<Layout> Layout::create(const Spec& spec) {
  DSF_OK(check_spec(spec));
  Layout out;
  out.spec_ = spec;
  std::set<int64_t> seen;  // over all layers: no two columns of the model share a prime
  for (size_t l = 0; l < spec.layer_ids.size(); ++l) {
    LayerConstants layer;
    layer.layer_id = spec.layer_ids[l];
    layer.multipliers = hash_multipliers(layer.layer_id, spec.compressed_vocab_size, spec.max_ngram_size);
    for (int64_t order = 2; order <= spec.max_ngram_size; ++order) {
      int64_t prime = spec.hash_vocab_size - 1;
      for (int64_t head = 0; head < spec.n_heads; ++head) {
        do {
          ++prime;
        } while (!is_prime(static_cast<uint64_t>(prime)) || seen.contains(prime));
        seen.insert(prime);
        layer.primes.push_back(prime);
        layer.offsets.push_back(layer.rows);
        layer.rows += prime;
      }
    }
    if (layer.rows != spec.num_embeddings[l])
      return bad("engram_num_embeddings says " + std::to_string(spec.num_embeddings[l]) + " rows for layer " + std::to_string(layer.layer_id) +
                 ", the hash heads add up to " + std::to_string(layer.rows));
    out.layers_.push_back(std::move(layer));
  }
  return out;
}

Result<RowRange> Layout::rank_columns(int rank, int world) const {
  const int64_t n = columns();
  if (world < 1 || rank < 0 || rank >= world)
    return fail(Code::kUsage, "rank " + std::to_string(rank) + " of " + std::to_string(world), "no such rank", "ranks run from 0 to world-size - 1", "rank");
  const int64_t per = ceil_div<int64_t>(n, world);
  if (per * (world - 1) >= n)
    return fail(Code::kUsage, "world size " + std::to_string(world), "leaves a rank without hash heads (" + std::to_string(n) + " columns, " +
                std::to_string(per) + " each)", "use a smaller world size", "rank");
  return RowRange{rank * per, std::min(n, (rank + 1) * per)};
}

Result<RowRange> Layout::rank_rows(size_t layer_index, int rank, int world) const {
  DSF_TRY(const RowRange columns, rank_columns(rank, world));
  const LayerConstants& layer = layers_.at(layer_index);
  const auto last = static_cast<size_t>(columns.end - 1);
  return RowRange{layer.offsets[static_cast<size_t>(columns.begin)], layer.offsets[last] + layer.primes[last]};
}

}  // namespace dsf::engram
