#pragma once
// A small seeded generator whose numbers are part of files that must be equal on every machine. A value; one owner at a
// time. Not for secrets. Source: the splitmix64 recurrence (Steele, Lea, Flood 2014).
#include <cstdint>

namespace dsf {

class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double sign() { return next() >> 63 ? -1.0 : 1.0; }

 private:
  uint64_t state_;
};

}  // namespace dsf
