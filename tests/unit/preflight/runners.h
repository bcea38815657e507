#pragma once
// The three tools that judge files, run without argv, and the made checkpoint they judge.
#include <filesystem>
#include <string>

#include "dsf/test/folders.h"
#include "tools/preflight/options.h"

namespace dsf::test {

Ran run_preflight(const preflight::RawOptions& raw);
Ran run_verify(const std::filesystem::path& dir, const std::filesystem::path& pin);  // pin may be empty
Ran run_pack(const std::filesystem::path& source, const std::filesystem::path& output,
             const std::filesystem::path& pin);
Ran run_pack_ranks(const std::filesystem::path& source, const std::filesystem::path& output, int world);  // every rank
Ran run_pack_check(const std::filesystem::path& source, const std::filesystem::path& packs);  // source empty: by record

// What dsf-serve does before it listens: opens the engine on the CPU backend, says which weights nobody has hashed.
Ran run_serve(const std::filesystem::path& model, const std::filesystem::path& packs);

// The made checkpoint in both forms, packs of its tables, and a pin of each folder: made once per run, never changed.
struct Made {
  std::filesystem::path native, exl3, packs, native_pin, exl3_pin;
};
const Made& made();

void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to);
// Model and packs of the made checkpoint on a made machine without a GPU: nothing depends on where the test runs.
preflight::RawOptions preflight_of(const std::filesystem::path& model, const std::filesystem::path& packs);

// Copies of model and packs, to be changed.
struct Node {
  TempDir dir;
  std::filesystem::path model = dir / "model", packs = dir / "packs";
  explicit Node(const std::filesystem::path& from = made().native);
  preflight::RawOptions options() const { return preflight_of(model, packs); }
};

}  // namespace dsf::test
