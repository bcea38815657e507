#include "tools/bench/prompts.h"

#include <algorithm>
#include <array>

#include "dsf/codec/sha256.h"

namespace dsf::bench {
namespace {

// 256 four-letter words, so that a word is eight bits of the generator and tokenizers see one token each.
constexpr std::string_view kWords =
    "able acid aged also area army away baby back ball band bank base bath beam bear bell belt bend best "
    "bird blue boat body bold bone book born both bowl bulk burn bush busy cake call calm came camp card "
    "care case cash cast cell chat chip city clay club coal coat code cold cook cool cope copy core corn "
    "cost crew crop dark data date dawn days dead deal dear debt deck deep deer desk dial diet dirt dish "
    "disk dock done door dose down draw drop drum dual duke dust duty each earn ease east easy edge exit "
    "face fact fair fall farm fast fate fear feed feel file fill film find fine fire firm fish five flat "
    "flow folk food foot ford form fort four free fuel full fund gain game gate gave gear gift girl give "
    "glad goal goat gold golf gone good gray grew grid grow gulf hair half hall hand hang hard harm hate "
    "have head hear heat held help herb hero high hill hint hire hold hole holy home hope horn host hour "
    "huge hunt idea inch into iron item jazz join joke jump jury just keen keep kept kick kind king knee "
    "knew know lack lake lamp land lane last late lead leaf lean left lens life lift like limb line link "
    "lion list live load loan lock long look lord lose loss lost loud love luck made mail main make male "
    "many mark mass meal mean meat meet menu mild mile milk mill mind mine mint mode";
static_assert(kWords.size() == 256 * 5 - 1);

constexpr std::string_view kTail =
    "Ignore the word lists above. Write a long, plain English story of at least four hundred words about a lighthouse "
    "keeper and a storm. No lists, no headings. Begin with the first sentence of the story.";
constexpr int kNonceWords = 8;
constexpr int kLineWords = 14;

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : x_(state) {}
  uint64_t next() {
    x_ += 0x9E3779B97F4A7C15U;
    uint64_t z = x_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

 private:
  uint64_t x_;
};

uint64_t first_u64_big_endian(const codec::Digest& digest) {
  uint64_t out = 0;
  for (size_t i = 0; i < 8; ++i) out = (out << 8) | std::to_integer<uint64_t>(digest.bytes[i]);
  return out;
}

void append_words(std::string& out, SplitMix64& random, int n) {
  for (int i = 0; i < n; ++i) {
    if (i > 0) out += ' ';
    out += kWords.substr(static_cast<size_t>(random.next() >> 56) * 5, 4);
  }
}

struct Vector {
  PromptKey key;
  std::string_view sha256;
};

}  // namespace

std::string PromptKey::text() const {
  std::string out(style.empty() ? kPromptGenerator : std::string_view(style));
  out += "|seed=" + std::to_string(seed) + "|lines=" + std::to_string(lines) + "|phase=" + phase;
  out += "|thinking=" + thinking + "|c=" + std::to_string(c) + "|repeat=" + std::to_string(repeat);
  return out + "|slot=" + std::to_string(slot);
}

uint64_t key_number(const PromptKey& key) { return first_u64_big_endian(codec::sha256(key.text())); }

std::string nonce_line(const PromptKey& key) {
  SplitMix64 random(key_number(key));
  std::string out;
  append_words(out, random, kNonceWords);
  return out;
}

std::string prompt_text(const PromptKey& key) { return prompt_text_of_words(key, key.lines * kLineWords); }

std::string prompt_text_of_words(const PromptKey& key, int64_t n_words) {
  SplitMix64 random(key_number(key));
  std::string out;
  append_words(out, random, kNonceWords);
  for (int64_t left = n_words; left > 0; left -= kLineWords) {
    out += '\n';
    append_words(out, random, static_cast<int>(std::min<int64_t>(left, kLineWords)));
    out += '.';
  }
  out += "\n\n";
  out += kTail;
  return out;
}

std::string pass_hash(const std::vector<std::string>& prompt_sha256_hex) {
  std::string all;
  for (const auto& hex : prompt_sha256_hex) all += hex + "\n";
  return codec::sha256(all).hex();
}

bool prompt_selftest() {
  const std::array<Vector, 2> vectors = {
      Vector{{1, 27, "decode", "off", 1, 0, 0, {}}, "a3cb183fb36f2625bbda0e81dbee32852e2b1c678ad82f9aa6255240a7a2ae61"},
      Vector{{1, 2, "decode", "off", 1, 0, 0, {}}, "49931bb7428d0b78acf093912e147137fc14fc7a804403b1b5823faeb63bbb89"}};
  for (const auto& v : vectors) {
    if (codec::sha256(prompt_text(v.key)).hex() != v.sha256) return false;
  }
  return true;
}

}  // namespace dsf::bench
