#pragma once
// The exchange kernel of peer.cpp: its memory and its launcher. Private to comm.
//
// Every rank owns a region of device memory that the others write:
//   inbox  [2 parities][world sources][kMaxBlocks][kChunkBytes]   data of large messages
//   flags  [2 parities][world sources][kMaxBlocks] lines of 128 B, 8 bytes used: sequence (low half) and signature
//   small  [2 parities][world sources][kMaxBlocks][kSmallUnits + 1] of 16 B: {word, sequence, word, sequence}
//
// Small messages carry the sequence beside every word, so that their arrival needs no flag, fence or barrier: a thread
// writes its units, and reads the same units of the others until both sequences are this exchange's. The last unit of a
// block holds the signature.
// Block b of every rank talks to block b of the others only, with a sequence of its own, so blocks need not be resident
// together. Two parities are enough: a rank starts exchange k + 2 of a block after finishing k + 1, which needed the
// others' k + 1, which they post after reading k.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace dsf::comm::peer {

inline constexpr int kMaxRanks = 8, kMaxBlocks = 64, kThreads = 256;
inline constexpr size_t kChunkBytes = 32 << 10, kPack = 16, kFlagBytes = 128;
inline constexpr int kSmallUnits = 2 * kThreads;                             // of 8 payload bytes, of a block
inline constexpr size_t kSmallBytes = size_t{kSmallUnits} * 8 * kMaxBlocks;  // the largest small message

constexpr size_t inbox_bytes(int world) { return 2 * static_cast<size_t>(world) * kMaxBlocks * kChunkBytes; }
constexpr size_t flags_bytes(int world) { return 2 * static_cast<size_t>(world) * kMaxBlocks * kFlagBytes; }
constexpr size_t small_bytes(int world) {
  return 2 * static_cast<size_t>(world) * kMaxBlocks * (kSmallUnits + 1) * kPack;
}
constexpr size_t region_bytes(int world) { return inbox_bytes(world) + flags_bytes(world) + small_bytes(world); }

enum class Fault : uint32_t { kNone, kAborted, kTimeout, kDivergence };

// In host memory that the device can reach.
struct HostState {
  uint32_t abort;                                                            // written by the host
  uint32_t fault, peer, sequence, seen_sequence, seen_signature, signature;  // written by the device, fault last
};

enum class Op : uint32_t { kSumF32 = 1, kSumBf16 = 2, kGather = 3 };

struct Args {
  std::byte* region[kMaxRanks];  // of every rank
  uint32_t* sequence;            // own [kMaxBlocks], then one word: poisoned
  HostState* host;
  size_t flags_offset, small_offset;  // in a region
  int rank, world;
  uint32_t signature;
  uint64_t timeout_ns;
};

// in: packs * 16 bytes; out: the same for sums (may be in), [world * packs * 16 bytes] for kGather.
cudaError_t launch(Op op, const Args& args, const void* in, void* out, int64_t packs, cudaStream_t stream);

}  // namespace dsf::comm::peer
