#pragma once
// EngramReader: reads the Engram rows of a step while the layers before them run.
//
// start() hands row numbers to threads that read records straight into the caller's memory; wait(layer) returns once
// this layer's are there, and reads along until then. Layers are read in order, so a later one's reads overlap the
// layers between. One step at a time, one caller; the memory must stay until finish(). Borrows the row source. Source:
// engram.md 5.7.
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "dsf/base/result.h"
#include "dsf/engram/rows.h"

namespace dsf::serve {

class EngramReader {
 public:
  EngramReader(const engram::RowSource& source, int threads);
  ~EngramReader();
  EngramReader(const EngramReader&) = delete;
  EngramReader& operator=(const EngramReader&) = delete;

  // rows: [layer] table rows; out: [layer] room for their records. The step before must be finished.
  void start(std::vector<std::vector<int64_t>> rows, std::vector<std::span<std::byte>> out);
  // Errors: those of reading, of this layer's rows.
  Result<void> wait(size_t layer);
  // Returns when no thread touches the step's memory any more.
  void finish();

 private:
  struct Task {
    size_t layer = 0, first = 0, count = 0;
  };
  struct Layer {
    std::vector<int64_t> rows;
    std::span<std::byte> out;
    size_t tasks_left = 0;
    Result<void> result;
  };
  void work(const std::stop_token& stop);
  void run_one(std::unique_lock<std::mutex>& lock);

  const engram::RowSource& source_;
  std::mutex mutex_;                     // guards what follows; not held while reading
  std::condition_variable_any started_;  // there are tasks to take
  std::condition_variable done_;         // a layer has none left
  std::vector<Layer> layers_;
  std::vector<Task> tasks_;
  size_t next_ = 0;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace dsf::serve
