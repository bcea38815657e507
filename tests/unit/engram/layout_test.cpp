#include "dsf/engram/layout.h"

#include "release.h"

using namespace dsf;
using namespace dsf::test;
using engram::Layout;

TEST_CASE("the release's multipliers are the published eight") {
  const Layout l = release_layout();
  CHECK(l.layers()[0].multipliers == std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391});
  CHECK(l.layers()[1].multipliers == std::vector<int64_t>{67716810739261, 51510806800915, 30921347202721, 82619226485591});
}

TEST_CASE("the release's primes and offsets are the published tables") {
  const Layout l = release_layout();
  const std::vector<int64_t> one{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183, 16000189, 16000207, 16000211, 16000253,
                                 16000277, 16000289, 16000307, 16000321, 16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463};
  const std::vector<int64_t> fourteen{16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627, 16000667, 16000669, 16000693, 16000697,
                                      16000711, 16000729, 16000759, 16000769, 16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889};
  CHECK(l.columns() == 24);
  CHECK(l.row_bytes() == 264);
  CHECK(l.layers()[0].primes == one);
  CHECK(l.layers()[1].primes == fourteen);
  CHECK(l.layers()[0].rows == 384006168);
  CHECK(l.layers()[1].rows == 384016682);
  CHECK(l.layers()[0].offsets[8] == 128000880);
  CHECK(l.layers()[0].offsets[23] == 368005705);
  CHECK(l.layers()[1].offsets[16] == 256009984);
  CHECK(l.layers()[1].offsets[23] == 368015793);
}

TEST_CASE("the small layout fixture: primes stay unique over layers and orders") {
  engram::Spec s{.layer_ids = {1, 14}, .num_embeddings = {72, 204}, .hash_vocab_size = 5, .max_ngram_size = 4, .n_heads = 2,
                 .head_dim = 256, .pad_token_id = 2, .compressed_vocab_size = 99092, .vocab_size = 129280};
  const auto l = Layout::create(s);
  REQUIRE(l);
  CHECK(l->layers()[0].primes == std::vector<int64_t>{5, 7, 11, 13, 17, 19});
  CHECK(l->layers()[1].primes == std::vector<int64_t>{23, 29, 31, 37, 41, 43});
}

TEST_CASE("ranks own whole hash heads, as published for worlds 1, 2, 3, 4 and 5") {
  const Layout l = release_layout();
  const auto rows = [&](size_t layer, int rank, int world) { return *l.rank_rows(layer, rank, world); };
  CHECK(rows(0, 0, 1) == engram::RowRange{0, 384006168});
  CHECK(rows(0, 0, 2) == engram::RowRange{0, 192001740});
  CHECK(rows(0, 1, 2) == engram::RowRange{192001740, 384006168});
  CHECK(rows(1, 0, 2) == engram::RowRange{0, 192007016});
  CHECK(rows(1, 1, 2) == engram::RowRange{192007016, 384016682});
  CHECK(rows(0, 1, 3) == engram::RowRange{128000880, 256002934});
  CHECK(rows(1, 2, 3) == engram::RowRange{256009984, 384016682});
  CHECK(rows(0, 3, 4) == engram::RowRange{288003654, 384006168});
  CHECK(rows(1, 1, 4) == engram::RowRange{96003054, 192007016});
  CHECK(*l.rank_columns(4, 5) == engram::RowRange{20, 24});
}

TEST_CASE("a world in which a rank would own nothing is refused") {
  const Layout l = release_layout();
  for (const int world : {7, 16, 25, 0, -1}) {
    const auto r = l.rank_rows(0, 0, world);
    REQUIRE(!r);
    CHECK(r.error().code == Code::kUsage);
  }
  CHECK(!l.rank_rows(0, 2, 2));
  CHECK(!l.rank_rows(0, -1, 2));
}

TEST_CASE("every world's ranges join without gap or overlap") {
  for (const Layout& l : {release_layout(), tiny_layout()})
    for (int world = 1; world <= 24; ++world) {
      if (!l.rank_columns(0, world)) continue;
      for (size_t layer = 0; layer < l.layers().size(); ++layer) {
        int64_t at = 0;
        for (int rank = 0; rank < world; ++rank) {
          const auto r = l.rank_rows(layer, rank, world);
          REQUIRE(r);
          CHECK(r->begin == at);
          CHECK(r->size() > 0);
          at = r->end;
        }
        CHECK(at == l.layers()[layer].rows);
      }
    }
}

TEST_CASE("a configuration whose row counts do not follow from its hash heads is refused") {
  engram::Spec s = release_spec();
  s.num_embeddings[1] += 1;
  const auto l = Layout::create(s);
  REQUIRE(!l);
  CHECK(l.error().code == Code::kContent);
  CHECK(l.error().line().find("layer 14") != std::string::npos);
}

TEST_CASE("nonsense in the configuration is an error, never a crash") {
  const auto refused = [](auto change) {
    engram::Spec s = release_spec();
    change(s);
    return !Layout::create(s);
  };
  CHECK(refused([](engram::Spec& s) { s.max_ngram_size = 1; }));
  CHECK(refused([](engram::Spec& s) { s.max_ngram_size = 1000000; }));
  CHECK(refused([](engram::Spec& s) { s.n_heads = 0; }));
  CHECK(refused([](engram::Spec& s) { s.n_heads = 256; }));
  CHECK(refused([](engram::Spec& s) { s.head_dim = 48; }));
  CHECK(refused([](engram::Spec& s) { s.hash_vocab_size = INT64_MAX; }));
  CHECK(refused([](engram::Spec& s) { s.compressed_vocab_size = 0; }));
  CHECK(refused([](engram::Spec& s) { s.pad_token_id = s.vocab_size; }));
  CHECK(refused([](engram::Spec& s) { s.layer_ids = {}; }));
  CHECK(refused([](engram::Spec& s) { s.layer_ids = {1, 1}; }));
  CHECK(refused([](engram::Spec& s) { s.layer_ids = {1}; }));
  CHECK(refused([](engram::Spec& s) { s.layer_ids = {-1, 14}; }));
}

TEST_CASE("is_prime agrees with trial division and knows strong pseudoprimes") {
  for (uint64_t n = 0; n < 5000; ++n) {
    bool prime = n >= 2;
    for (uint64_t d = 2; d * d <= n; ++d) prime = prime && n % d != 0;
    CHECK(engram::is_prime(n) == prime);
  }
  CHECK(!engram::is_prime(3215031751));  // strong pseudoprime to 2, 3, 5 and 7
  CHECK(!engram::is_prime(25326001));
  CHECK(engram::is_prime(4294967291));
}
