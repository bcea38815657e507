#include "dsf/model/engram.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "dsf/io/file.h"
#include "dsf/test/support.h"

using namespace dsf;
using namespace dsf::test;

TEST_CASE("the release's configuration gives the release's Engram layout") {
  const auto config = model::load_config(golden() / "config" / "release.json");
  REQUIRE(config);
  const auto layout = engram::Layout::create(model::engram_spec(*config));
  REQUIRE(layout);
  CHECK(layout->layers()[1].rows == 384016682);
  CHECK(layout->row_bytes() == 264);
}

TEST_CASE("the full token map built from tokenizer.json is the published one") {
  if (shared_data().empty()) return skip("full token map", "shared data not present");
  TempDir dir;
  std::filesystem::copy_file(shared_data() / "tokenizer_v41_reconstructed.json", dir / "tokenizer.json");
  const auto config = model::load_config(golden() / "config" / "release.json");
  REQUIRE(config);
  const auto built = model::load_token_map(dir.path(), *config);
  REQUIRE_MESSAGE(built, built.error().line());
  const auto published = engram::TokenMap::load(shared_data() / "engram_token_map.json");
  REQUIRE(published);
  CHECK(built->ids() == published->ids());
  CHECK(built->digest() == "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
}

TEST_CASE("without a tokenizer the list beside the checkpoint is taken, and held against the configuration") {
  if (shared_data().empty()) return skip("token map beside a checkpoint", "shared data not present");
  const auto dir = shared_data() / "tiny_v41";
  auto config = model::load_config(dir / "config.json");
  REQUIRE(config);
  CHECK(model::load_token_map(dir, *config));
  config->engram_compressed_vocab_size = 199;
  const auto wrong = model::load_token_map(dir, *config);
  REQUIRE(!wrong);
  CHECK(wrong.error().code == Code::kContent);
  TempDir empty;
  CHECK(model::load_token_map(empty.path(), *config).error().code == Code::kMissing);
}
