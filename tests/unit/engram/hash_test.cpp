#include "dsf/engram/hash.h"

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"
#include "dsf/test/support.h"
#include "release.h"

using namespace dsf;
using namespace dsf::test;
using engram::Hasher;
using engram::TokenMap;

namespace {

struct Vector {
  std::string name;
  size_t layer_index;
  std::vector<int64_t> ids, compressed, rows;
};
std::vector<Vector> published() {
  const auto text = io::read_text(golden() / "engram_hash_vectors.json");
  REQUIRE(text);
  const auto root = json::parse(*text, "engram_hash_vectors.json");
  REQUIRE(root);
  std::vector<Vector> out;
  for (const json::Value& v : root->find("vectors")->as_array()) {
    const json::Cursor c(v, "vector");
    out.push_back({*c.string_at("name"), *c.integer_at("layer") == 1 ? size_t{0} : size_t{1}, *c.at("ids")->integers(),
                   *c.at("compressed")->integers(), *c.at("rows")->integers()});
  }
  REQUIRE(out.size() == 14);
  return out;
}

// A map of the release's sizes that is the identity on compressed ids.
TokenMap identity_map() {
  const engram::Spec s = release_spec();
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < s.vocab_size; ++i) ids.push_back(static_cast<int32_t>(std::min(i, s.compressed_vocab_size - 1)));
  auto map = TokenMap::from_ids(ids, "filler");
  REQUIRE(map);
  return *map;
}

struct Tokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> dead;
};
Tokens tokens_of(const std::vector<int64_t>& ids) {
  Tokens t;
  for (const int64_t id : ids) {
    t.ids.push_back(id < 0 ? 129264 : static_cast<int32_t>(id));
    t.dead.push_back(id < 0 ? 1 : 0);
  }
  return t;
}

void check_last_rows(const Hasher& hasher, const Vector& v, const std::vector<int64_t>& ids) {
  const Tokens t = tokens_of(ids);
  std::vector<int64_t> rows(t.ids.size() * 2 * 24);
  auto state = hasher.start();
  hasher.rows(state, t.ids, t.dead, rows);
  const auto last = rows.begin() + static_cast<std::ptrdiff_t>(((t.ids.size() - 1) * 2 + v.layer_index) * 24);
  INFO(v.name);
  CHECK(std::vector<int64_t>(last, last + 24) == v.rows);
}

}  // namespace

TEST_CASE("the fourteen published vectors, from compressed ids") {
  // With a map that is the identity below 99092 compressed ids can be fed directly. Windows that begin later than the sequence start
  // are full ones, so the last four ids are all the hash sees.
  for (const Vector& v : published()) {
    const auto hasher = Hasher::create(release_layout(), identity_map(), "filler");
    REQUIRE(hasher);
    check_last_rows(*hasher, v, v.compressed);
  }
}

TEST_CASE("the fourteen published vectors, from raw ids through the real token map") {
  if (shared_data().empty()) return skip("raw-id hash vectors", "shared data not present");
  const auto map = TokenMap::load(shared_data() / "engram_token_map.json");
  REQUIRE(map);
  const auto hasher = Hasher::create(release_layout(), *map, "engram_token_map.json");
  REQUIRE(hasher);
  for (const Vector& v : published()) check_last_rows(*hasher, v, v.ids);
}

TEST_CASE("the tiny golden model: constants and every row of three prompts and their continuations") {
  if (shared_data().empty()) return skip("tiny golden rows", "shared data not present");
  const auto dir = shared_data() / "tiny_v41";
  const auto file = safetensors::File::open(dir / "golden.safetensors");
  const auto map = TokenMap::load(dir / "engram_token_map.json");
  REQUIRE(file);
  REQUIRE(map);
  const auto ints = [&](const std::string& name) { return *safetensors::to_i64(*file->tensor(name)); };
  const auto hasher = Hasher::create(tiny_layout(), *map, "tiny");
  REQUIRE(hasher);
  CHECK(std::vector<int64_t>(map->ids().begin(), map->ids().end()) == ints("engram_token_map"));
  std::vector<int64_t> multipliers, primes, offsets;
  for (const auto& layer : hasher->layout().layers()) {
    multipliers.insert(multipliers.end(), layer.multipliers.begin(), layer.multipliers.end());
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
  }
  CHECK(multipliers == ints("engram_multipliers"));
  CHECK(primes == ints("engram_primes"));
  CHECK(offsets == ints("engram_offsets"));
  for (int p = 0; p < 3; ++p) {
    const std::string prefix = "prompt" + std::to_string(p) + ".";
    auto state = hasher->start();
    for (const auto& [ids_name, rows_name] : {std::pair("input_ids", "engram_rows"), std::pair("cont_ids", "cont_engram_rows")}) {
      const auto ids = ints(prefix + ids_name);
      const std::vector<int32_t> tokens(ids.begin(), ids.end());
      std::vector<int64_t> rows(tokens.size() * 2 * 6);
      hasher->rows(state, tokens, {}, rows);
      CHECK(rows == ints(prefix + rows_name));
    }
  }
}

TEST_CASE("chunking never changes the rows") {
  const auto hasher = Hasher::create(release_layout(), identity_map(), "filler");
  REQUIRE(hasher);
  Tokens t;
  uint32_t seed = 7;
  for (int i = 0; i < 200; ++i) {
    seed = seed * 1664525u + 1013904223u;
    t.ids.push_back(static_cast<int32_t>((seed >> 8) % 140000));  // some beyond the vocabulary: dead by definition
    t.dead.push_back((seed >> 4) % 11 == 0);
  }
  std::vector<int64_t> whole(t.ids.size() * 48);
  auto state = hasher->start();
  hasher->rows(state, t.ids, t.dead, whole);
  for (const size_t chunk : {size_t{1}, size_t{2}, size_t{3}, size_t{7}, size_t{64}}) {
    std::vector<int64_t> parts(whole.size());
    auto s = hasher->start();
    for (size_t at = 0; at < t.ids.size(); at += chunk) {
      const size_t n = std::min(chunk, t.ids.size() - at);
      hasher->rows(s, std::span(t.ids).subspan(at, n), std::span(t.dead).subspan(at, n), std::span(parts).subspan(at * 48, n * 48));
    }
    CHECK(parts == whole);
    CHECK(s == state);
  }
  auto advanced = hasher->start();
  hasher->advance(advanced, t.ids, t.dead);
  CHECK(advanced == state);
}

TEST_CASE("a rejected draft is undone by keeping the state") {
  const auto hasher = Hasher::create(release_layout(), identity_map(), "filler");
  REQUIRE(hasher);
  const std::vector<int32_t> committed{5, 6, 7}, draft{8, 9}, next{10};
  auto state = hasher->start();
  hasher->advance(state, committed, {});
  auto drafting = state;
  hasher->advance(drafting, draft, {});
  std::vector<int64_t> after(48), direct(4 * 48);
  hasher->rows(state, next, {}, after);
  auto fresh = hasher->start();
  hasher->rows(fresh, std::vector<int32_t>{5, 6, 7, 10}, {}, direct);
  CHECK(std::equal(after.begin(), after.end(), direct.end() - 48));
}

TEST_CASE("a map of another size is refused before it can change every row") {
  const auto map = TokenMap::from_ids({0, 1, 2, 0}, "small");
  REQUIRE(map);
  const auto hasher = Hasher::create(release_layout(), *map, "engram_token_map.json");
  REQUIRE(!hasher);
  CHECK(hasher.error().code == Code::kContent);
}
