#pragma once
// Clocks as the project uses them: wall time for records (UTC, RFC 3339), monotonic nanoseconds for measurement.
#include <cstdint>
#include <string>

namespace dsf {
int64_t monotonic_ns();                        // CLOCK_MONOTONIC
int64_t unix_time_ms();                        // wall clock, milliseconds since 1970
std::string rfc3339_utc(int64_t unix_ms);      // "2026-11-30T06:11:22.123Z"
std::string now_rfc3339();
}  // namespace dsf
