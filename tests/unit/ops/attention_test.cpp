// Indexer scores, candidate blocks, selections, and attention over both lists.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tools/serve/backends/ops/indexer_topk/indexer_topk.h"
#include "tools/serve/backends/ops/sparse_attention/sparse_attention.h"

namespace dsf::serve::ops {
namespace {
constexpr float kNever = -std::numeric_limits<float>::infinity();
using Ids = std::vector<int32_t>;

Ids topk(const std::vector<float>& score, int64_t k, const Ids* blocks = nullptr, int64_t block_size = 0) {
  Ids out(static_cast<size_t>(k));
  topk_ref({.score = score.data(),
            .blocks = blocks ? blocks->data() : nullptr,
            .selection = out.data(),
            .n_rows = 1,
            .n_keys = std::ssize(score),
            .k = k,
            .block_size = block_size,
            .max_blocks = blocks ? std::ssize(*blocks) : 0});
  return out;
}
Ids candidates(const std::vector<float>& score, int64_t visible, int64_t block_size, int64_t max_blocks) {
  Ids out(static_cast<size_t>(max_blocks));
  candidate_blocks_ref({.score = score.data(),
                        .visible = &visible,
                        .blocks = out.data(),
                        .n_rows = 1,
                        .n_keys = std::ssize(score),
                        .block_size = block_size,
                        .max_blocks = max_blocks});
  return out;
}
}  // namespace

TEST_CASE("scores are head-weighted rectified products; rows that a query does not see get minus infinity") {
  const std::vector<float> q = {1, 0, 0, 1}, weight = {2, -3},
                           keys = {1, 1, -1, 4, 5, 5};  // two heads of 2, three keys
  const int64_t visible = 2;
  std::vector<float> score(3);
  index_score_ref({.q = q.data(),
                   .weight = weight.data(),
                   .keys = keys.data(),
                   .visible = &visible,
                   .score = score.data(),
                   .n_rows = 1,
                   .n_heads = 2,
                   .dim = 2,
                   .n_keys = 3});
  CHECK(score == std::vector<float>{2 - 3, -12, kNever});
}

TEST_CASE("a selection is ascending, padded, prefers the lower index on ties and drops what is not visible") {
  CHECK(topk({1, 5, 3, 5, 2}, 3) == Ids{1, 2, 3});
  CHECK(topk({7, 7, 7, 7}, 2) == Ids{0, 1});
  CHECK(topk({-2, kNever, -1, kNever}, 3) == Ids{0, 2, -1});
  CHECK(topk({kNever}, 2) == Ids{-1, -1});
  CHECK(topk({}, 2) == Ids{-1, -1});
}

TEST_CASE("the newest visible block is always a candidate and counts; blocks nobody sees are not kept") {
  //                 block 0   block 1  block 2   block 3
  const std::vector<float> score = {9, 0, 8, 1, 7, 1, -5, kNever};
  CHECK(candidates(score, 7, 2, 3) == Ids{0, 1, 3});
  CHECK(candidates(score, 7, 2, 1) == Ids{3});
  CHECK(candidates({1, kNever, kNever, kNever}, 1, 2, 3) == Ids{0, -1, -1});
  CHECK(candidates({1, 2, 3}, 3, 2, 3) == Ids{0, 1, -1});       // a short last block
  CHECK(candidates({kNever, kNever}, 0, 2, 2) == Ids{-1, -1});  // nothing visible yet: nothing is forced
}

TEST_CASE("a limited selection takes rows of the candidate blocks only, also fewer than k") {
  const std::vector<float> score = {9, 0, 8, 1, 7, 1, -5};
  const Ids blocks = {1, 3, -1};
  CHECK(topk(score, 2, &blocks, 2) == Ids{2, 3});
  CHECK(topk(score, 5, &blocks, 2) == Ids{2, 3, 6, -1, -1});
}

TEST_CASE(
    "attention is a softmax over window and selected rows with a sink in the denominator; a row in both lists counts "
    "twice") {
  const std::vector<float> q = {1}, window = {5, 1, 2}, rows = {2, 9},
                           sink = {0.5f};  // ring of 3: position 4 at slot 1, 5 at slot 2
  const std::vector<int64_t> begin = {4}, end = {6};
  const Ids selection = {0, -1};
  std::vector<float> out(1);
  sparse_attention_ref({.q = q.data(),
                        .window = window.data(),
                        .window_begin = begin.data(),
                        .window_end = end.data(),
                        .rows = rows.data(),
                        .selection = selection.data(),
                        .sink = sink.data(),
                        .out = out.data(),
                        .n_rows = 1,
                        .n_heads = 1,
                        .head_dim = 1,
                        .ring_rows = 3,
                        .n_selected = 2,
                        .scale = 0.5f});
  const double a = std::exp(0.5), b = std::exp(1.0);
  CHECK(out[0] == doctest::Approx((a * 1 + 2 * b * 2) / (a + 2 * b + std::exp(0.5))));
}

TEST_CASE("an empty list gives zeros") {
  const std::vector<float> q = {1, 2}, window = {5, 6}, sink = {0.5f};
  const std::vector<int64_t> none = {0};
  std::vector<float> out = {7, 7};
  sparse_attention_ref({.q = q.data(),
                        .window = window.data(),
                        .window_begin = none.data(),
                        .window_end = none.data(),
                        .sink = sink.data(),
                        .out = out.data(),
                        .n_rows = 1,
                        .n_heads = 1,
                        .head_dim = 2,
                        .ring_rows = 1,
                        .scale = 1});
  CHECK(out == std::vector<float>{0, 0});
}

TEST_CASE("large scores do not overflow") {
  const std::vector<float> q = {1000}, window = {900, 1000}, sink = {0};
  const std::vector<int64_t> begin = {0}, end = {2};
  std::vector<float> out(1);
  sparse_attention_ref({.q = q.data(),
                        .window = window.data(),
                        .window_begin = begin.data(),
                        .window_end = end.data(),
                        .sink = sink.data(),
                        .out = out.data(),
                        .n_rows = 1,
                        .n_heads = 1,
                        .head_dim = 1,
                        .ring_rows = 2,
                        .scale = 1});
  CHECK(out[0] == 1000);
}

}  // namespace dsf::serve::ops
