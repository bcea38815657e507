// Stands in for libFuzzer: runs every corpus file, then mutations of them from a fixed seed.
//
//   fuzz_<name> [--runs=N] [--seed=N] FOLDER|FILE...
//
// Stops after N mutations (default 3000) or two seconds, whichever comes first. The sequence of inputs depends on the seed alone. When an
// input crashes, it is written to ./crash-input; give that file as an argument to run it again.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxInputBytes = 64 << 10;
constexpr auto kBudget = std::chrono::seconds(2);

std::string current;  // what the target is looking at

extern "C" void save_and_die(int signal) {
  const int fd = open("crash-input", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0) {
    [[maybe_unused]] const ssize_t n = write(fd, current.data(), current.size());
    close(fd);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void run(std::string input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

std::vector<std::string> read_corpus(const std::vector<fs::path>& places) {
  std::vector<fs::path> files;
  for (const fs::path& place : places) {
    if (fs::is_directory(place)) {
      for (const auto& entry : fs::recursive_directory_iterator(place)) {
        if (entry.is_regular_file()) files.push_back(entry.path());
      }
    } else {
      files.push_back(place);
    }
  }
  std::ranges::sort(files);
  std::vector<std::string> out;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::cerr << file << ": cannot be read\n";
      std::exit(2);
    }
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, uint64_t seed) : corpus_(corpus), rng_(seed) {}

  std::string next() {
    std::string s = corpus_[below(corpus_.size())];
    for (size_t n = 1 + below(4); n > 0; --n) mutate(s);
    if (s.size() > kMaxInputBytes) s.resize(kMaxInputBytes);
    return s;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng_() % n); }
  char any_byte() { return static_cast<char>(rng_() & 0xFF); }

  void mutate(std::string& s) {
    const size_t at = below(s.size() + 1);
    const size_t n = std::min(below(16) + 1, s.size() - at);
    switch (below(8)) {
      case 0:
        if (at < s.size()) s[at] = static_cast<char>(s[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < s.size()) s[at] = any_byte();
        return;
      case 2: s.insert(at, 1, any_byte()); return;
      case 3: s.erase(at, n); return;
      case 4: s.insert(below(s.size() + 1), std::string(s, at, n)); return;
      case 5: s.resize(at); return;
      case 6: {
        const std::string& other = corpus_[below(corpus_.size())];
        const size_t from = below(other.size() + 1);
        s.insert(at, other, from, below(64));
        return;
      }
      default: {
        static constexpr std::string_view kBad[] = {"0", "-1", "18446744073709551616", "1e999", "null", "{}", "[]", "\"", "\\u0000", "\xFF", "\xED\xA0\x80", "\xEF\xBD\x9C"};
        s.insert(at, kBad[below(std::size(kBad))]);
      }
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 rng_;
};

}  // namespace

int main(int argc, char** argv) {
  uint64_t runs = 3000, seed = 1;
  std::vector<fs::path> places;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--runs=")) {
      runs = std::strtoull(argv[i] + 7, nullptr, 10);
    } else if (arg.starts_with("--seed=")) {
      seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else {
      places.emplace_back(arg);
    }
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGFPE, SIGILL, SIGBUS}) std::signal(signal, save_and_die);
  const auto corpus = read_corpus(places);
  if (corpus.empty()) {
    std::cerr << "no corpus files given\n";
    return 2;
  }
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& input : corpus) run(input);
  Mutator mutator(corpus, seed);
  uint64_t done = 0;
  while (done < runs && std::chrono::steady_clock::now() - start < kBudget) {
    run(mutator.next());
    ++done;
  }
  std::cout << corpus.size() << " corpus files, " << done << " mutations, seed " << seed << "\n";
  return 0;
}
