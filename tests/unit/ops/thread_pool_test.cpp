#include "tools/serve/backends/cpu/thread_pool.h"

#include <doctest/doctest.h>

#include <atomic>
#include <vector>

namespace dsf::serve::cpu {

TEST_CASE("pieces cover a range once, whatever its length and the thread count") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t n : {0, 1, 2, 3, 7, 8, 9, 1000}) {
      for (const int64_t min_piece : {1, 4, 1000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
        pool.for_range(n, min_piece, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        bool once = true;
        for (const auto& h : hits) once = once && h == 1;
        CHECK(once);
      }
    }
  }
}

TEST_CASE("many short calls in a row neither hang nor lose work") {
  ThreadPool pool(4);
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 2000; ++i) pool.for_range(4, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  CHECK(sum == 8000);
}

}  // namespace dsf::serve::cpu
