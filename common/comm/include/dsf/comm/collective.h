#pragma once
// Collectives between the ranks of one model, on host memory: the contract every transport keeps, and the in-process reference.
//
// Each rank owns one Communicator and calls it from one thread; abort() may come from any thread. All ranks call the same operations in the
// same order with the same sizes: every exchange carries a signature, and a mismatch is a detected fault, never a hang. Sums are formed in
// rank order 0..N-1 with f32 accumulation, so every rank holds the same bits. The first error sticks: every later call returns it at once.
//
// Errors: kRemote, with cls "timeout", "divergence", "peer_lost" or "aborted"; the text names rank, operation and exchange number.
// Source: cluster.md 1.2.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::comm {

struct Phase {
  std::string name;            // "start", "load", "step"
  uint64_t step = 0;
  int64_t timeout_us = 20'000'000;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int world() const = 0;

  // values: [n] on every rank; replaced by the sum over the ranks.
  virtual Result<void> all_reduce_sum(std::span<float> values) = 0;
  // own: this rank's bytes, the same number on every rank; out: [world * own.size()], rank 0 first.
  virtual Result<void> all_gather(std::span<const std::byte> own, std::span<std::byte> out) = 0;
  // bytes: read on root, written on the others; the same number on every rank.
  virtual Result<void> broadcast(std::span<std::byte> bytes, int root) = 0;
  virtual Result<void> barrier() = 0;

  // Rank 0 says what comes next; the others hear() it, in order. Saying waits for nobody, hearing has no bound (an idle server says nothing
  // for hours), but a lost peer or abort() ends it.
  virtual Result<void> tell(std::span<const std::byte> message) = 0;
  virtual Result<std::vector<std::byte>> hear() = 0;

  // Names what the calls that follow belong to, for errors, and bounds each of their waits. Local: nothing is exchanged.
  virtual void enter(const Phase& phase) = 0;
  // The fault that ended this group, if one did; seen also while nothing is called.
  virtual Result<void> check() const = 0;

  // Ends every wait of every rank of this process; for other processes the connection goes down. Never blocks.
  virtual void abort(const std::string& reason) = 0;
};

// Fails with kUsage on every rank, naming the key, unless all ranks give the same pairs in the same order. For plans and digests at start.
Result<void> agree(Communicator& comm, std::span<const std::pair<std::string, std::string>> facts);

// N communicators of one process, joined by shared memory: the oracle, and tensor parallel on the CPU. timeout_us bounds every wait.
std::vector<std::unique_ptr<Communicator>> in_process_group(int world, int64_t timeout_us = 20'000'000);

// World of one: every operation is the identity.
std::unique_ptr<Communicator> single_rank();

}  // namespace dsf::comm
