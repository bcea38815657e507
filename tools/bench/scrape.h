#pragma once
// Prometheus text, as far as a benchmark needs it: sums of samples by name, and labels that are digests (bench.md 1.8, 2.5, 5).
// Pure functions, any thread. Server words are untrusted: lines that do not parse are skipped.
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dsf::bench {

struct Scrape {
  std::map<std::string, double> samples;      // by name, summed over labels; histogram buckets left out
  std::map<std::string, std::string> digests; // labels named *sha256* or *digest*
};
Scrape parse_metrics(std::string_view text);

// The counters worth keeping in a record: caches, drafts, queues, tokens.
bool worth_keeping(std::string_view name);

// First sample whose name is one of the usual ones; nullopt when the server has none.
std::optional<double> running_requests(const std::map<std::string, double>& samples);

struct ServerDelta {
  std::optional<double> cache_hit_fraction;   // hits / queries within the level
  std::optional<double> drafts, drafted, accepted;
  std::optional<double> tokens_per_round;     // (rounds + accepted) / rounds
};
ServerDelta difference(const std::map<std::string, double>& before, const std::map<std::string, double>& after);

}  // namespace dsf::bench
