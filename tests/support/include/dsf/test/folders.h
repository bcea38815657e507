#pragma once
// For tests of tools that judge folders: running a tool without argv, pins of what lies there, and damage in place.
// Header only; who includes it links dsf::io, dsf::codec and dsf::manifest.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/pin.h"
#include "dsf/test/support.h"

namespace dsf::test {

struct Ran {
  int code = 0;
  std::string out, err;  // err also holds the line of an error that stopped the run as a whole
  bool says(const std::string& words) const { return err.find(words) != std::string::npos; }
  bool prints(const std::string& words) const { return out.find(words) != std::string::npos; }
  long lines() const { return std::count(err.begin(), err.end(), '\n'); }
};

// plan: a Result of the tool's make_plan(); run: its run(plan, out, err).
template <class PlanResult, class Run>
Ran run_plan(const PlanResult& plan, Run run) {
  std::ostringstream out, err;
  if (!plan) return {static_cast<int>(plan.error().code), "", plan.error().line() + "\n"};
  const Result<int> rc = run(*plan, out, err);
  if (!rc) return {static_cast<int>(rc.error().code), out.str(), err.str() + rc.error().line() + "\n"};
  return {*rc, out.str(), err.str()};
}

// A pin of the files below folder.
inline manifest::Pin pin_of(const std::filesystem::path& folder, const std::string& repo = "org/folder") {
  manifest::Pin pin;
  pin.name = "folder";
  pin.source.repo = repo;
  pin.source.revision = std::string(40, 'a');
  pin.complete = true;
  const auto files = io::list_files(folder);
  REQUIRE(files);
  for (const std::string& name : *files) {
    if (name.starts_with(".cache/")) continue;  // the tools' own notes
    manifest::PinFile f;
    f.path = name;
    f.size = *io::file_size(folder / name);
    f.sha256 = codec::sha256_file(folder / name)->hex();
    f.role = manifest::guess_role(name);
    pin.files.push_back(std::move(f));
  }
  pin.sort();
  return pin;
}
inline std::filesystem::path write_pin(const manifest::Pin& pin, const std::filesystem::path& path) {
  REQUIRE(io::write_file_atomic(path, manifest::write(pin)));
  return path;
}

// One bit, in place: same file, same size.
inline void flip(const std::filesystem::path& file, uint64_t at) {
  const auto fd = io::open_write(file, true);
  REQUIRE(fd);
  std::byte b{};
  REQUIRE(io::read_at(*fd, at, {&b, 1}));
  b ^= std::byte{0x10};
  REQUIRE(io::write_at(*fd, at, {&b, 1}));
}
inline void cut(const std::filesystem::path& file, uint64_t bytes) {
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - bytes);
}
// The first place only; it must be there.
inline void replace_text(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  std::string text = *io::read_text(file);
  REQUIRE_MESSAGE(text.find(from) != std::string::npos, from);
  REQUIRE(io::write_file_atomic(file, text.replace(text.find(from), from.size(), to)));
}

}  // namespace dsf::test
