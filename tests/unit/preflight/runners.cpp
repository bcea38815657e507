#include "runners.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "dsf/base/numeric.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/made_checkpoint/folders.h"
#include "dsf/manifest/pin.h"
#include "tools/pack-engram/run.h"
#include "tools/preflight/run.h"
#include "tools/verify/run.h"

namespace dsf::test {
namespace {

template <class PlanResult, class Run>
Ran run_plan(const PlanResult& plan, Run run) {
  std::ostringstream out, err;
  if (!plan) return {static_cast<int>(plan.error().code), "", plan.error().line() + "\n"};
  const Result<int> rc = run(*plan, out, err);
  if (!rc) return {static_cast<int>(rc.error().code), out.str(), err.str() + rc.error().line() + "\n"};
  return {*rc, out.str(), err.str()};
}

std::filesystem::path write_pin(const std::filesystem::path& folder, const std::filesystem::path& path) {
  manifest::Pin pin;
  pin.name = "made";
  pin.source.repo = "made/checkpoint";
  pin.source.revision = std::string(40, 'a');
  pin.complete = true;
  const auto files = io::list_files(folder);
  REQUIRE(files);
  for (const std::string& name : *files) {
    manifest::PinFile f;
    f.path = name;
    f.size = *io::file_size(folder / name);
    f.sha256 = codec::sha256_file(folder / name)->hex();
    f.role = manifest::guess_role(name);
    pin.files.push_back(std::move(f));
  }
  pin.sort();
  REQUIRE(io::write_file_atomic(path, manifest::write(pin)));
  return path;
}

}  // namespace

long Ran::lines() const { return std::count(err.begin(), err.end(), '\n'); }

Ran run_preflight(const preflight::RawOptions& raw) { return run_plan(preflight::make_plan(raw), preflight::run); }

Ran run_verify(const std::filesystem::path& dir, const std::filesystem::path& pin) {
  verify::RawOptions raw;
  raw.dir = dir;
  raw.common.pin = pin;
  raw.common.jobs = 1;
  return run_plan(verify::make_plan(raw), verify::run);
}

Ran run_pack(const std::filesystem::path& source, const std::filesystem::path& output, const std::filesystem::path& pin) {
  pack_engram::RawOptions raw;
  raw.source = source;
  raw.common.output = output;
  raw.common.pin = pin;
  return run_plan(pack_engram::make_plan(raw), pack_engram::run);
}

Ran run_pack_check(const std::filesystem::path& source, const std::filesystem::path& packs) {
  pack_engram::RawOptions raw;
  raw.source = source;
  raw.check = packs;
  return run_plan(pack_engram::make_plan(raw), pack_engram::run);
}

const Made& made() {
  static const TempDir dir;
  static const Made m = [] {
    Made out{made_checkpoint::native_folder(), made_checkpoint::exl3_folder(), dir / "packs", {}, {}};
    out.native_pin = write_pin(out.native, dir / "native.json");
    out.exl3_pin = write_pin(out.exl3, dir / "exl3.json");
    REQUIRE(run_pack(out.native, out.packs, "").code == 0);
    return out;
  }();
  return m;
}

void copy_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
}

preflight::RawOptions preflight_of(const std::filesystem::path& model, const std::filesystem::path& packs) {
  preflight::RawOptions raw;
  raw.model = model;
  raw.engram = packs;
  raw.backend = "cpu";
  raw.memory = 8 * kGiB;
  return raw;
}

}  // namespace dsf::test
