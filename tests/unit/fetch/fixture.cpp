#include "fixture.h"

#include <doctest/doctest.h>

#include <fstream>
#include <random>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"

namespace dsf::test {

std::string noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::string out;
  while (out.size() < bytes) {
    const uint64_t word = rng();
    out.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  out.resize(bytes);
  return out;
}

FetchFixture::FetchFixture(loopback_hub::Options options) {
  files = {{"config.json", "{\"a\": 1}\n"},
           {"empty.txt", ""},
           {"sub/d ir \xC3\xA9#%.txt", "odd name\n"},
           {"model-00001-of-00003.safetensors", noise(700'000, 1)},
           {"model-00002-of-00003.safetensors", noise(300'001, 2)},
           {"model-00003-of-00003.safetensors", noise(5, 3)},
           {"tokenizer.json", noise(40'000, 4)}};
  for (const auto& [path, content] : files) {
    write("hub/org/repo/" + path, content);
  }
  options.root = dir / "hub";
  options.page_size = 2;
  auto started = loopback_hub::LoopbackHub::start(options);
  REQUIRE_MESSAGE(started, started.error().line());
  hub = std::move(*started);
}

std::shared_ptr<hub::Shared> FetchFixture::shared(const std::string& token) const {
  hub::Settings s;
  s.endpoint = hub->endpoint();
  s.token = token;
  s.stall_timeout_us = 500'000;
  hub::RetryPolicy quick;
  quick.base_us = 1000;
  quick.cap_us = 5000;
  quick.attempts = 4;
  return std::make_shared<hub::Shared>(s, quick);
}

fetch::GetOptions FetchFixture::options() const {
  fetch::GetOptions o;
  o.what = "org/repo";
  o.local_dir = dir / "out";
  o.engine.connections = 4;
  o.engine.piece_bytes = 64 * kKiB;
  o.engine.whole_file_bytes = 32 * kKiB;
  o.reserve_bytes = 0;
  o.quiet = true;
  return o;
}

Result<int> FetchFixture::get(const fetch::GetOptions& o, const std::string& token) const {
  fetch::Events events(false);
  return fetch::run_get(o, shared(token), events);
}

loopback_hub::Fault make_fault(const std::string& action, int64_t n, int64_t times, const std::string& host,
                               const std::string& path, const std::string& text, int64_t nth) {
  loopback_hub::Fault f;
  f.action = action;
  f.n = n;
  f.times = times;
  f.host = host;
  f.path_contains = path;
  f.text = text;
  f.nth = nth;
  return f;
}

void FetchFixture::fault(const std::string& action, int64_t n, int64_t times, const std::string& host,
                         const std::string& path, const std::string& text) const {
  hub->add_fault(make_fault(action, n, times, host, path, text));
}

bool FetchFixture::exists(const std::string& path) const { return std::filesystem::exists(dir.path() / "out" / path); }

std::string FetchFixture::read(const std::string& path) const {
  const auto text = io::read_text(dir.path() / "out" / path);
  return text ? *text : "<absent>";
}

void FetchFixture::write(const std::string& path, const std::string& content) const {
  const auto file = dir.path() / path;
  REQUIRE(io::make_dirs(file.parent_path()));
  std::ofstream(file, std::ios::binary) << content;  // no sync: speed
}

void FetchFixture::check_complete() const {
  for (const auto& [path, content] : files) CHECK_MESSAGE((read(path) == content), path);
  const auto left = io::list_files(dir.path() / "out/.cache/fetch/parts");
  REQUIRE(left);
  CHECK(left->empty());
}

}  // namespace dsf::test
