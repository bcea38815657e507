// Every stored form of a checkpoint through the engine: native E4M3 and FP4, EXL3, plain F32; Engram tables in shards
// and in packed files; and damaged ones, which must be refused by name.
#include <doctest/doctest.h>

#include <cmath>

#include "dsf/engram/packed.h"
#include "dsf/engram/packed_writer.h"
#include "dsf/engram/rows.h"
#include "dsf/made_checkpoint/folders.h"
#include "dsf/made_checkpoint/made_checkpoint.h"
#include "dsf/model/engram.h"
#include "dsf/test/support.h"
#include "tools/serve/engine/cpu_engine.h"

namespace dsf::serve {
namespace {

namespace made = made_checkpoint;

std::unique_ptr<CpuEngine> open(const std::filesystem::path& model, const std::filesystem::path& engram = {}) {
  CpuEngineOptions options;
  options.model_dir = model;
  options.engram_dir = engram;
  options.threads = 2;
  auto engine = CpuEngine::open(std::move(options));
  REQUIRE_MESSAGE(engine.has_value(), (engine ? std::string() : engine.error().line()));
  return std::move(*engine);
}

// Logits of every position of a fixed prompt, and a draft's behind them.
std::vector<float> answers(CpuEngine& engine) {
  std::vector<int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back((i * 37 + 11) % static_cast<int32_t>(engine.config().vocab_size));
  const SessionId session = *engine.open();
  const StepItem item{.session = session, .tokens = ids, .want_all_logits = true};
  const auto out = engine.step({&item, 1});
  REQUIRE(out.has_value());
  std::vector<float> all(out->logits.begin(), out->logits.end());
  const auto draft = engine.draft(session, 12);
  REQUIRE(draft.has_value());
  all.insert(all.end(), draft->logits.begin(), draft->logits.end());
  return all;
}

void pack_tables(const std::filesystem::path& native, const std::filesystem::path& out, int world) {
  const auto config = model::load_config(native / "config.json");
  const auto layout = engram::Layout::create(model::engram_spec(*config));
  const auto source = engram::CheckpointRows::open(native, *layout);
  REQUIRE(source.has_value());
  for (size_t l = 0; l < layout->layers().size(); ++l) {
    for (int rank = 0; rank < world; ++rank) {
      const auto header = engram::expected_header(*layout, l, rank, world);
      const auto name = engram::packed_file_name(layout->layers()[l].layer_id, rank, world);
      auto writer = engram::PackedWriter::create(out / name, *header);
      const auto n = static_cast<int64_t>(header->hi - header->lo);
      std::vector<std::byte> weights(static_cast<size_t>(n * layout->head_dim())),
          scales(static_cast<size_t>(n * layout->scale_bytes()));
      REQUIRE((*source)->read_block(l, static_cast<int64_t>(header->lo), n, weights, scales).has_value());
      REQUIRE(writer->append(weights, scales).has_value());
      REQUIRE(writer->finish().has_value());
    }
  }
}

}  // namespace

TEST_CASE("an EXL3 pack answers bit for bit as its weights in plain F32") {
  const auto packed = open(made::exl3_folder(), made::native_folder());
  const auto plain = open(made::dequantised_folder(), made::native_folder());
  const std::vector<float> a = answers(*packed);
  CHECK(a == answers(*plain));
  for (const float v : a) REQUIRE(std::isfinite(v));
}

TEST_CASE("native E4M3 and FP4 weights are those the EXL3 pack was quantised from: the answers are close, not equal") {
  const std::vector<float> native = answers(*open(made::native_folder()));
  const std::vector<float> packed = answers(*open(made::exl3_folder(), made::native_folder()));
  double difference = 0, size = 0;
  for (size_t i = 0; i < native.size(); ++i) {
    difference += std::pow(native[i] - packed[i], 2);
    size += std::pow(native[i], 2);
  }
  MESSAGE("rms difference relative to rms logit: ", std::sqrt(difference / size));
  CHECK(difference > 0);
  CHECK(std::sqrt(difference / size) < 0.9);  // unrelated logits would give 1.4
}

TEST_CASE("packed Engram files of any world size give the bits of the checkpoint's own tables") {
  const std::vector<float> own = answers(*open(made::native_folder()));
  for (const int world : {1, 2}) {
    const dsf::test::TempDir dir;
    pack_tables(made::native_folder(), dir.path(), world);
    const auto engine = open(made::native_folder(), dir.path());
    CHECK(answers(*engine) == own);
    bool says_packed = false;
    for (const auto& [name, value] : engine->identity())
      says_packed = says_packed || value.find("packed") != std::string::npos;
    CHECK(says_packed);
  }
}

TEST_CASE("two world sizes in one folder are ambiguous") {
  const dsf::test::TempDir dir;
  pack_tables(made::native_folder(), dir.path(), 1);
  pack_tables(made::native_folder(), dir.path(), 2);
  CpuEngineOptions options;
  options.model_dir = made::native_folder();
  options.engram_dir = dir.path();
  CHECK(CpuEngine::open(std::move(options)).error().code == Code::kUsage);
}

TEST_CASE("a damaged checkpoint is refused with the tensor's name") {
  const std::pair<std::string, Code> cases[] = {{"missing-tensor:layers.3.attn.wkv.weight", Code::kMissing},
                                                {"wrong-shape:layers.3.attn.wkv.weight", Code::kContent},
                                                {"missing-tensor:layers.3.attn.wkv.scale", Code::kMissing}};
  for (const auto& [what, code] : cases) {
    CAPTURE(what);
    const dsf::test::TempDir dir;
    made::copy_folder(made::native_folder(), dir / "m");
    const auto breakage = made::parse_breakage(what);
    REQUIRE(breakage.has_value());
    REQUIRE(made::damage(dir / "m", *breakage).has_value());
    CpuEngineOptions options;
    options.model_dir = dir / "m";
    const auto engine = CpuEngine::open(std::move(options));
    REQUIRE_FALSE(engine.has_value());
    CHECK(engine.error().code == code);
    CHECK(engine.error().line().find("layers.3.attn.wkv") != std::string::npos);
  }
}

}  // namespace dsf::serve
