// Every way to break the made checkpoint, and its packs, against every tool that judges files. docs/corruptions.md is
// this test's output: the test fails when the two differ, and writes the page when DSF_UPDATE_DOCS is set.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "dsf/io/file.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "runners.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// The stable name in one line of a refusal: a check of dsf-preflight, a finding code of dsf-verify, or what a file's
// status says.
std::string name_in(const std::string& line) {
  for (const char* prefix : {"config.", "shards.", "tensors.", "routers.", "tokenizer.", "engram.", "memory.", "disk."})
    if (const size_t at = line.find(std::string(": ") + prefix); at != std::string::npos)
      return line.substr(at + 2, line.find(':', at + 2) - at - 2);
  for (const char* kind : {": ST", ": IX", ": QC"})
    if (const size_t at = line.find(kind); at != std::string::npos && line.size() > at + 6 && line[at + 6] == ' ')
      return line.substr(at + 2, 4);
  if (line.find("sha256 differs") != std::string::npos) return "sha256";
  if (line.find(": is missing;") != std::string::npos) return "missing";
  if (line.find(" expected; fetch it again") != std::string::npos) return "size";
  return "";
}

// "1 ST10", "1 tensors.table", "8": exit code and the stable name of the first finding that is an error. "ok" only
// stands where the tool cannot see the damage, and then it must have said what it has not checked.
std::string verdict(const Ran& ran) {
  if (ran.code == 0) {
    INFO(ran.out, ran.err);
    CHECK((ran.out + ran.err).find("not checked") != std::string::npos);
    return "ok";
  }
  std::string name;
  std::istringstream lines(ran.err);
  for (std::string line; std::getline(lines, line) && name.empty();)
    if (line.find(": warning: ") == std::string::npos && line.find(": note: ") == std::string::npos)
      name = name_in(line);
  return std::to_string(ran.code) + (name.empty() ? "" : " " + name);
}

// Lines of a refusal are whole sentences with something to do; code 2, 5, 6 and 8 come from the error itself.
void actionable(const Ran& ran, const std::string& what) {
  if (ran.code == 0) return;
  INFO(what, ": ", ran.err);
  CHECK(ran.lines() >= 1);
  CHECK(ran.err.find("; ") != std::string::npos);
  CHECK((ran.code == 1 || ran.code == 2 || ran.code == 5 || ran.code == 8));
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& c : cells) out += " " + c + " |";
  return out + "\n";
}

bool empty_of_packs(const std::filesystem::path& dir) {
  std::error_code ec;
  for (const auto& e : std::filesystem::directory_iterator(dir, ec))
    if (e.path().extension() == ".bin" || e.path().extension() == ".tmp") return false;
  return true;
}

struct Case {
  std::string breakage;
  bool tables = false;  // of the native form's Engram tables only
};
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string_view name : made_checkpoint::breakage_names()) out.push_back({std::string(name), false});
  const std::string table = ":layers.1.engram.embed.weight";
  for (const char* kind :
       {"flip-bit", "truncate", "wrong-shape", "wrong-dtype", "missing-tensor", "unlisted-tensor", "lost-shard"})
    out.push_back({kind + table, true});
  return out;
}

// One checkpoint row: what each tool makes of it. Empty when this form cannot be broken in this way.
std::string checkpoint_row(const Case& c, bool native) {
  const auto breakage = made_checkpoint::parse_breakage(c.breakage);
  REQUIRE(breakage);
  TempDir dir;
  copy_folder(native ? made().native : made().exl3, dir / "model");
  const auto done = made_checkpoint::damage(dir / "model", *breakage);
  if (!done) return "";
  const Ran pinned = run_verify(dir / "model", native ? made().native_pin : made().exl3_pin);
  const Ran bare = run_verify(dir / "model", "");
  const Ran ready = run_preflight(preflight_of(dir / "model", made().packs));
  Ran pack;
  if (native) {
    pack = run_pack(dir / "model", dir / "packs", "");
    if (pack.code != 0) CHECK_MESSAGE(empty_of_packs(dir / "packs"), c.breakage);
  }
  const Ran served = run_serve(dir / "model", made().packs);
  INFO(c.breakage, native ? " native" : " exl3", ": ", *done);
  CHECK(pinned.code == 1);  // a pin sees everything
  for (const Ran& ran : {pinned, bare, ready, pack, served}) actionable(ran, c.breakage);
  return row({c.breakage, native ? "native" : "EXL3", verdict(pinned), verdict(bare), native ? verdict(pack) : "-",
              verdict(ready), verdict(served)});
}

struct PackCase {
  std::string name;
  std::function<void(std::string& bytes)> change;  // of the first layer's file; empty result: removed
};
std::vector<PackCase> pack_cases() {
  return {{"one bit of a weight", [](std::string& b) { b[4096 + 1000] = static_cast<char>(b[4096 + 1000] ^ 4); }},
          {"one bit of the last scale", [](std::string& b) { b.back() = static_cast<char>(b.back() ^ 4); }},
          {"records shifted by one: right size, wrong content",
           [](std::string& b) { std::rotate(b.begin() + 4096, b.begin() + 4096 + 66, b.end()); }},
          {"all zero after the header: right size, wrong content",
           [](std::string& b) { std::fill(b.begin() + 4096, b.end(), '\0'); }},
          {"magic bytes swapped (DSV41EN1)", [](std::string& b) { b.replace(0, 8, "DSV41EN1"); }},
          {"magic bytes in big-endian order", [](std::string& b) { std::reverse(b.begin(), b.begin() + 8); }},
          {"another layer in the header", [](std::string& b) { b[8] = 9; }},
          {"rows of another split in the header", [](std::string& b) { b[16] = 1; }},
          {"reserved bytes not zero", [](std::string& b) { b[3000] = 1; }},
          {"last byte cut", [](std::string& b) { b.pop_back(); }},
          {"last record cut", [](std::string& b) { b.resize(b.size() - 66); }},
          {"one record too many", [](std::string& b) { b.append(66, 'x'); }},
          {"header alone", [](std::string& b) { b.resize(4096); }},
          {"empty file", [](std::string& b) { b.resize(0); }},
          {"file missing", nullptr}};
}

std::string pack_row(const PackCase& c) {
  TempDir dir;
  copy_folder(made().packs, dir / "packs");
  const auto file = dir / "packs" / "engram-l1-r0of1.bin";
  if (c.change == nullptr) {
    std::filesystem::remove(file);
  } else {
    std::string bytes = *io::read_text(file);
    c.change(bytes);
    REQUIRE(io::write_file_atomic(file, bytes));
  }
  const Ran source = run_pack_check(made().native, dir / "packs"), record = run_pack_check("", dir / "packs"),
            ready = run_preflight(preflight_of(made().exl3, dir / "packs")),
            served = run_serve(made().exl3, dir / "packs");
  INFO(c.name);
  CHECK(source.code == 1);
  CHECK(record.code == 1);
  CHECK(ready.code == 1);
  for (const Ran& ran : {source, record, ready, served}) actionable(ran, c.name);
  // Packing again over it repairs it: never kept for its size.
  CHECK(run_pack(made().native, dir / "packs", "").code == 0);
  CHECK(*io::read_text(file) == *io::read_text(made().packs / "engram-l1-r0of1.bin"));
  return row({c.name, verdict(source), verdict(record), verdict(ready), verdict(served)});
}

std::string page() {
  std::string out =
      "# What each tool catches\n\n"
      "This page is written by the unit test `preflight` (tests/unit/preflight/corruption_test.cpp), from what the "
      "tools answered. Do not edit it:\n"
      "run the test with `DSF_UPDATE_DOCS=1`. A cell holds the exit code and the stable name of the first finding. "
      "`ok` means that the tool\n"
      "cannot see this kind of damage; it then says what it has not checked (the test insists on that line). `-`: it "
      "does not read such a folder.\n\n"
      "## Damage to a checkpoint\n\n"
      "`verify --pin` compares with a pin of the undamaged folder; `verify` has nothing to compare with and judges "
      "structure alone;\n"
      "`pack-engram` packs from the damaged folder; `preflight` and `serve` (loading on the\n"
      "CPU backend) have intact packs beside it.\n\n";
  out += row({"damage", "form", "verify --pin", "verify", "pack-engram", "preflight", "serve"}) +
         row({"---", "---", "---", "---", "---", "---", "---"});
  for (const bool native : {true, false})
    for (const Case& c : cases())
      if (native || !c.tables) out += checkpoint_row(c, native);
  out +=
      "\n## Damage to a packed Engram file\n\n"
      "`--check` with the source tables, `--check` with the packing record alone, and `preflight` and `serve` of an "
      "EXL3 pack with these\n"
      "files. In every case packing again repairs the file.\n\n";
  out += row({"damage", "check, source", "check, record", "preflight", "serve"}) +
         row({"---", "---", "---", "---", "---"});
  for (const PackCase& c : pack_cases()) out += pack_row(c);
  return out;
}

}  // namespace

TEST_CASE("every damage is refused by the right tool, and docs/corruptions.md says so") {
  const std::filesystem::path file = std::filesystem::path(DSF_SOURCE_DIR) / "docs" / "corruptions.md";
  const std::string observed = page();
  if (std::getenv("DSF_UPDATE_DOCS") != nullptr) REQUIRE(io::write_file_atomic(file, observed));
  const auto committed = io::read_text(file);
  REQUIRE(committed);
  CHECK_MESSAGE(observed == *committed,
                "docs/corruptions.md is out of date: run this test with DSF_UPDATE_DOCS=1 and look at the difference");
}
