#pragma once
// Strings to ids, built once: open addressing over views that the owner keeps alive.
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace dsf::tokenizer {

// Mixes 8 bytes at a time: pieces are short, and this is on the path of every one of them.
inline uint64_t hash_bytes(std::string_view s) {
  uint64_t h = 0x9E3779B97F4A7C15ULL ^ s.size();
  const auto mix = [&](uint64_t word) {
    h = (h ^ word) * 0xD6E8FEB86659FD93ULL;
    h ^= h >> 32;
  };
  while (s.size() >= 8) {
    uint64_t word;
    std::memcpy(&word, s.data(), 8);
    mix(word);
    s.remove_prefix(8);
  }
  uint64_t tail = 0;
  for (const char c : s) tail = tail << 8 | static_cast<uint8_t>(c);
  mix(tail);
  return h ^ h >> 29;
}

class StringMap {
 public:
  void reserve(size_t n) { rehash(std::bit_ceil(n * 2 + 8)); }
  // The id already there, or -1 after inserting.
  int32_t insert(std::string_view key, int32_t id) {
    if ((size_ + 1) * 2 > slots_.size()) rehash(std::bit_ceil(size_ * 4 + 16));
    Slot& slot = place(key);
    if (slot.id >= 0) return slot.id;
    slot = {key, id};
    ++size_;
    return -1;
  }
  int32_t find(std::string_view key) const {
    if (slots_.empty()) return -1;
    for (size_t i = hash_bytes(key);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.id < 0 || slot.key == key) return slot.id;
    }
  }

 private:
  struct Slot {
    std::string_view key;
    int32_t id = -1;
  };
  Slot& place(std::string_view key) {
    for (size_t i = hash_bytes(key);; ++i) {
      Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.id < 0 || slot.key == key) return slot;
    }
  }
  void rehash(size_t n) {
    std::vector<Slot> old(n);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id >= 0) place(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace dsf::tokenizer
