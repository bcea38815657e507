#pragma once
// The three tools that judge files, run without argv, and the made checkpoint they judge.
#include <filesystem>
#include <string>

#include "dsf/test/support.h"
#include "tools/preflight/options.h"

namespace dsf::test {

struct Ran {
  int code = 0;
  std::string out, err;  // err also holds the line of an error that stopped the run
  bool says(const std::string& words) const { return err.find(words) != std::string::npos; }
  long lines() const;
};

Ran run_preflight(const preflight::RawOptions& raw);
Ran run_verify(const std::filesystem::path& dir, const std::filesystem::path& pin);  // pin may be empty
Ran run_pack(const std::filesystem::path& source, const std::filesystem::path& output, const std::filesystem::path& pin);
Ran run_pack_check(const std::filesystem::path& source, const std::filesystem::path& packs);  // source empty: by record

// The made checkpoint in both forms, packs of its tables, and a pin of each folder: made once per run, never changed.
struct Made {
  std::filesystem::path native, exl3, packs, native_pin, exl3_pin;
};
const Made& made();

void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to);
// Model and packs of the made checkpoint, with a memory budget that does not depend on this machine.
preflight::RawOptions preflight_of(const std::filesystem::path& model, const std::filesystem::path& packs);

}  // namespace dsf::test
