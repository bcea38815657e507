// dsf-quantize from a native folder to a pack.
#include <doctest/doctest.h>

#include "dsf/exl3/quantize.h"
#include "dsf/exl3_pack/pack_writer.h"
#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/model/tensor_table.h"
#include "dsf/test/support.h"
#include "mini.h"
#include "tests/support/quantize/report.h"

using namespace dsf;
using namespace dsf::quantize;
using safetensors::Checkpoint;

namespace {

struct Folders {
  dsf::test::TempDir dir;
  std::filesystem::path native = dir.path() / "native", ids = dir.path() / "ids.txt";
  Folders() {
    quantize_test::write_mini(native);
    std::string text = "0";
    for (int i = 1; i < 200; ++i) text += " " + std::to_string(i % 61 == 0 ? 0 : 5 + i * 37 % 120);
    REQUIRE(io::write_file_atomic(ids, text));
    REQUIRE(io::write_file_atomic(native / "tokenizer.json", "{}"));
  }
  Plan plan(const std::string& output) const {
    Plan p;
    p.native = native.string();
    p.output = (dir.path() / output).string();
    p.widths = Widths::parse("experts=2,3,head=5").value();
    p.calibration = ids.string();
    p.max_shard_bytes = 100 * 1000;
    return p;
  }
};

Report packed(const Plan& plan) {
  auto report = run(plan);
  REQUIRE_MESSAGE(report, (report ? std::string() : report.error().line()));
  return std::move(*report);
}

std::string bytes_of(const std::filesystem::path& dir) {
  std::string all;
  const std::vector<std::string> files = io::list_files(dir).value();
  for (const std::string& file : files) all += file + "\n" + io::read_text(dir / file).value();
  return all;
}

}  // namespace

TEST_CASE(
    "a pack holds every matrix and the small tensors, in the same bytes for any number of threads; feedback lowers "
    "output errors") {
  const Folders f;
  Plan fed_plan = f.plan("fed"), again_plan = f.plan("again"), plain_plan = f.plan("plain");
  fed_plan.threads = 1, again_plan.threads = 3, plain_plan.ldlq = false;
  const Report fed = packed(fed_plan), again = packed(again_plan), plain = packed(plain_plan);
  CHECK(bytes_of(fed_plan.output) == bytes_of(again_plan.output));
  CHECK(!std::filesystem::exists(fed_plan.output + ".part"));
  CHECK(run(fed_plan).error().code == Code::kUsage);  // the output exists
  CHECK(bytes_of(fed_plan.output) == bytes_of(again_plan.output));

  const model::Config c = model::load_config(std::filesystem::path(fed_plan.output) / "config.json").value();
  const Checkpoint pack = Checkpoint::open(fed_plan.output).value(), native = Checkpoint::open(f.native).value();
  CHECK(model::require_loadable(c, pack));
  const auto matrices = model::exl3_matrices(c);
  REQUIRE(fed.matrices.size() == matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    CAPTURE(matrices[i].name);
    const auto m = exl3::open(pack, matrices[i].name, matrices[i].out, matrices[i].in);
    REQUIRE(m);
    CHECK(m->bits == fed_plan.widths.bits(matrices[i].name));
    CHECK(fed.matrices[i].name == matrices[i].name);
    CHECK(fed.matrices[i].error < 1.6 * exl3::expected_error(exl3::Codebook::kMul1, m->bits));
    CHECK(*fed.matrices[i].output_error < 1.02 * *plain.matrices[i].output_error);
  }
  MESSAGE("output error " << *plain.rms_output_error << " without, " << *fed.rms_output_error << " with feedback");
  CHECK(*fed.rms_output_error < 0.9 * *plain.rms_output_error);
  CHECK(plain.rms_error < fed.rms_error);

  CHECK(pack.tensor("layers.0.ffn.gate.weight")->dtype() == tensor::DType::kF16);
  CHECK(pack.tensor("layers.0.attn.indexer.weights_proj.weight")->dtype() == tensor::DType::kF16);
  CHECK(std::ranges::equal(pack.tensor("layers.0.attn_norm.weight")->bytes,
                           native.tensor("layers.0.attn_norm.weight")->bytes));
  const std::vector<std::string> files = io::list_files(fed_plan.output).value();
  for (const std::string& file : files)
    if (file.ends_with(".safetensors"))
      CHECK(io::file_size(std::filesystem::path(fed_plan.output) / file).value() <= 100 * 1000);
  CHECK(io::read_text(std::filesystem::path(fed_plan.output) / "tokenizer.json").value() == "{}");
}

TEST_CASE("a report without a calibration text has no output errors; what is missing is named") {
  Report r;
  r.matrices = {{.name = "head", .bits = 3, .out = 128, .in = 128, .error = 0.125}};
  const Folders f;
  Plan plan = f.plan("no");
  plan.calibration.clear();
  const auto record = to_json(r, plan);
  REQUIRE(record);
  CHECK(record->find("schema")->as_string() == "quantize");
  CHECK(record->find("items")->as_array()[0].find("output_error")->is_null());
  CHECK(to_text(r).find("0.1250        -       -\n") != std::string::npos);

  plan.native = (f.dir.path() / "nowhere").string();
  CHECK(run(plan).error().code == Code::kMissing);
  CHECK(!std::filesystem::exists(plan.output));
}
