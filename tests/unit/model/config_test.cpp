#include "dsf/model/config.h"

#include <doctest/doctest.h>

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/test/support.h"

using namespace dsf;

namespace {
std::string release_text() { return io::read_text(test::golden() / "config" / "release.json").value(); }

// The release's configuration with one text field replaced.
std::string changed(const std::string& key, json::Value value) {
  json::Value root = json::parse(release_text(), "release").value();
  root.find("text_config")->set(key, std::move(value));
  return json::dump(root);
}
}  // namespace

TEST_CASE("the release's configuration parses and its roles are the published ones") {
  const auto c = model::parse_config(release_text(), "config.json");
  REQUIRE_MESSAGE(c, c.error().line());
  CHECK(c->image_token_id == 129264);
  CHECK(c->rope_scaling.enabled);
  CHECK(c->rms_norm_eps == 1e-20);
  CHECK(c->engram_columns() == 24);
  CHECK(c->engram_index(14) == 1);
  CHECK(c->engram_index(2) == -1);

  const auto roles = model::layer_roles(*c);
  CHECK(roles[1].kv_source == -1);
  CHECK(roles[7].kv_source == 2);
  CHECK(roles[19].index_source == 14);
  CHECK(roles[20].candidate_source);
  CHECK_FALSE(roles[20].candidate_limited);
  CHECK(roles[26].kv_source == 20);
  CHECK(roles[26].index_source == 24);
  for (int64_t i : {24, 28, 32, 36}) {
    CHECK(roles[static_cast<size_t>(i)].candidate_limited);
    CHECK(roles[static_cast<size_t>(i)].owns_index);
    CHECK_FALSE(roles[static_cast<size_t>(i)].owns_kv);
  }
  int n_kv = 0;
  for (const auto& r : roles) n_kv += r.owns_kv ? 1 : 0;
  CHECK(n_kv == 4);
}

TEST_CASE("the independent tiny model's configuration parses") {
  if (test::shared_data().empty()) return test::skip("tiny_v41 config", "shared data not present");
  const auto c = model::load_config(test::shared_data() / "tiny_v41" / "config.json");
  REQUIRE_MESSAGE(c, c.error().line());
  CHECK(c->num_hidden_layers == 10);
  CHECK(model::layer_roles(*c)[8].candidate_limited);
}

TEST_CASE("a broken rule is named with its place") {
  const auto error = [](const std::string& text) {
    const auto c = model::parse_config(text, "config.json");
    REQUIRE_FALSE(c);
    CHECK(c.error().code == Code::kContent);
    return c.error().line();
  };
  CHECK(error(changed("hidden_size", "big")).starts_with("config.json: text_config.hidden_size: integer expected"));
  CHECK(error(changed("head_dim", -1)).find("out of range") != std::string::npos);
  CHECK(error(changed("compress_ratios", json::Array{0, 1})).find("compress_ratios needs one entry") != std::string::npos);
  CHECK(error(changed("kv_source_layer_ids", json::Array{8, 2})).find("must ascend") != std::string::npos);
  CHECK(error(changed("kv_source_layer_ids", json::Array{8})).find("no source layer stands before") != std::string::npos);
  CHECK(error(changed("num_experts_per_tok", 385)).find("num_experts_per_tok") != std::string::npos);
  CHECK(error(changed("engram_layer_ids", json::Array{1})).find("engram_num_embeddings") != std::string::npos);
  CHECK(error(changed("num_hidden_layers", int64_t{1} << 30)).find("num_hidden_layers") != std::string::npos);
  CHECK(error("{\"model_type\":\"llama\"}").find("deepseek_v41 expected") != std::string::npos);
  CHECK(error("[]").find("object expected") != std::string::npos);
}
