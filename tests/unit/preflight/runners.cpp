#include "runners.h"

#include <doctest/doctest.h>

#include "dsf/base/numeric.h"
#include "dsf/made_checkpoint/folders.h"
#include "made_machine.h"
#include "tools/pack-engram/run.h"
#include "tools/preflight/run.h"
#include "tools/serve/engine/cpu_engine.h"
#include "tools/serve/identity.h"
#include "tools/verify/run.h"

namespace dsf::test {
Ran run_preflight(const preflight::RawOptions& raw) { return run_plan(preflight::make_plan(raw), preflight::run); }

Ran run_verify(const std::filesystem::path& dir, const std::filesystem::path& pin) {
  verify::RawOptions raw;
  raw.dir = dir;
  raw.common.pin = pin;
  raw.common.jobs = 1;
  return run_plan(verify::make_plan(raw), verify::run);
}

Ran run_pack(const std::filesystem::path& source, const std::filesystem::path& output,
             const std::filesystem::path& pin) {
  pack_engram::RawOptions raw;
  raw.source = source;
  raw.common.output = output;
  raw.common.pin = pin;
  return run_plan(pack_engram::make_plan(raw), pack_engram::run);
}

Ran run_pack_ranks(const std::filesystem::path& source, const std::filesystem::path& output, int world) {
  pack_engram::RawOptions raw;
  raw.source = source;
  raw.common.output = output;
  raw.rank = "all";
  raw.world_size = world;
  return run_plan(pack_engram::make_plan(raw), pack_engram::run);
}

Ran run_pack_check(const std::filesystem::path& source, const std::filesystem::path& packs) {
  pack_engram::RawOptions raw;
  raw.source = source;
  raw.check = packs;
  return run_plan(pack_engram::make_plan(raw), pack_engram::run);
}

Ran run_serve(const std::filesystem::path& model, const std::filesystem::path& packs) {
  const auto engine = serve::open_cpu_engine({.model_dir = model, .engram_dir = packs, .threads = 1});
  if (!engine) return {static_cast<int>(engine.error().code), "", engine.error().line() + "\n"};
  return {0, "", serve::unproven_weights(model) + "\n"};
}

const Made& made() {
  static const TempDir dir;
  static const Made m = [] {
    Made out{made_checkpoint::native_folder(), made_checkpoint::exl3_folder(), dir / "packs", {}, {}};
    out.native_pin = write_pin(pin_of(out.native), dir / "native.json");
    out.exl3_pin = write_pin(pin_of(out.exl3), dir / "exl3.json");
    REQUIRE(run_pack(out.native, out.packs, "").code == 0);
    return out;
  }();
  return m;
}

void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy(from, to,
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
}

Node::Node(const std::filesystem::path& from) {
  copy_folder(from, model);
  copy_folder(made().packs, packs);
}

preflight::RawOptions preflight_of(const std::filesystem::path& model, const std::filesystem::path& packs) {
  preflight::RawOptions raw;
  raw.model = model;
  raw.engram = packs;
  raw.backend = "cpu";
  raw.memory = 8 * kGiB;
  static const MadeMachine machine(0, false);
  raw.system_root = machine.root();
  raw.sample_seed = 1;  // the same rows every run
  return raw;
}

}  // namespace dsf::test
