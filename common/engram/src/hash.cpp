#include "dsf/engram/hash.h"

#include "dsf/base/check.h"

namespace dsf::engram {

Result<Hasher> Hasher::create(Layout layout, TokenMap map, std::string_view subject) {
  DSF_OK(map.expect(layout.spec().vocab_size, layout.spec().compressed_vocab_size, subject));
  Hasher out(std::move(layout), std::move(map));
  out.pad_ = out.map_.at(out.layout_.spec().pad_token_id);
  return out;
}

HashState Hasher::start() const {
  return HashState{std::vector<int32_t>(static_cast<size_t>(layout_.spec().max_ngram_size - 1), TokenMap::kDead)};
}

namespace {
void push(std::vector<int32_t>& window, int32_t compressed) {
  for (size_t i = 1; i < window.size(); ++i) window[i - 1] = window[i];
  window.back() = compressed;
}
}  // namespace

void Hasher::advance(HashState& state, std::span<const int32_t> tokens, std::span<const uint8_t> dead) const {
  DSF_CHECK(dead.empty() || dead.size() == tokens.size(), "one dead mark per token");
  for (size_t t = 0; t < tokens.size(); ++t) push(state.tail, !dead.empty() && dead[t] != 0 ? TokenMap::kDead : map_.at(tokens[t]));
}

void Hasher::rows(HashState& state, std::span<const int32_t> tokens, std::span<const uint8_t> dead, std::span<int64_t> rows) const {
  const auto orders = static_cast<size_t>(layout_.spec().max_ngram_size);
  const auto heads = static_cast<size_t>(layout_.spec().n_heads);
  const size_t n_layers = layout_.layers().size(), n_columns = static_cast<size_t>(layout_.columns());
  DSF_CHECK(state.tail.size() == orders - 1, "hash state of this layout");
  DSF_CHECK(dead.empty() || dead.size() == tokens.size(), "one dead mark per token");
  DSF_CHECK(rows.size() == tokens.size() * n_layers * n_columns, "rows: [n, n_layers, columns]");

  std::vector<int32_t> window(orders);  // oldest first; the last is the current token
  std::copy(state.tail.begin(), state.tail.end(), window.begin() + 1);
  std::vector<int64_t> slot(orders);    // newest first, pad where blocked
  auto out = rows.begin();
  for (size_t t = 0; t < tokens.size(); ++t) {
    push(window, !dead.empty() && dead[t] != 0 ? TokenMap::kDead : map_.at(tokens[t]));
    // A dead slot blocks every older one too: an n-gram never spans an image or the sequence start.
    bool blocked = false;
    for (size_t back = 0; back < orders; ++back) {
      const int32_t id = window[orders - 1 - back];
      blocked = blocked || id == TokenMap::kDead;
      slot[back] = blocked ? pad_ : id;
    }
    for (const LayerConstants& layer : layout_.layers()) {
      int64_t r = slot[0] * layer.multipliers[0];
      for (size_t back = 1; back < orders; ++back) {
        r ^= slot[back] * layer.multipliers[back];
        for (size_t head = 0; head < heads; ++head) {
          const size_t c = (back - 1) * heads + head;
          *out++ = r % layer.primes[c] + layer.offsets[c];
        }
      }
    }
  }
  state.tail.assign(window.begin() + 1, window.end());
}

}  // namespace dsf::engram
