#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "dsf/io/file.h"
#include "dsf/json/json.h"
#include "dsf/safetensors/safetensors.h"
#include "made_machine.h"
#include "runners.h"
#include "tools/preflight/checks.h"

using namespace dsf;
using namespace dsf::test;

namespace {

// Rewrites one shard with some tensors changed or dropped; the index follows.
void edit_tensors(const std::filesystem::path& model, const std::function<bool(safetensors::TensorData&)>& keep) {
  std::vector<safetensors::IndexEntry> index;
  const auto files = io::list_files(model);
  REQUIRE(files);
  for (const std::string& entry : *files) {
    if (!entry.ends_with(".safetensors")) continue;
    std::vector<safetensors::TensorData> tensors;
    {
      const auto file = safetensors::File::open(model / entry);
      REQUIRE(file);
      for (const auto& t : file->header().tensors) {
        const auto view = *file->tensor(t.name);
        safetensors::TensorData data{t.name, t.dtype, t.shape, {view.bytes.begin(), view.bytes.end()}};
        if (keep(data)) tensors.push_back(std::move(data));
      }
    }
    REQUIRE(safetensors::write_file(model / entry, tensors));
    for (const auto& t : tensors) index.push_back({t.name, entry});
  }
  REQUIRE(safetensors::write_index(model / "model.safetensors.index.json", index, 0));
}

json::Value item(const Ran& ran, const std::string& id) {
  const auto root = json::parse(ran.out, "report");
  REQUIRE(root);
  for (const json::Value& v : root->find("items")->as_array())
    if (v.find("id")->as_string() == id) return v;
  return {};
}

// Runs after the damage; the named check must fail with this class, and the run with code 1.
void fails(
    const Node& node, const std::string& id, const std::string& cls,
    const std::function<void(preflight::RawOptions&)>& change = [](preflight::RawOptions&) {}) {
  preflight::RawOptions raw = node.options();
  raw.common.json = true;
  change(raw);
  const Ran ran = run_preflight(raw);
  INFO(ran.err);
  CHECK(ran.code == 1);
  const json::Value v = item(ran, id);
  REQUIRE(!v.is_null());
  CHECK(v.find("status")->as_string() == "fail");
  CHECK(v.find("findings")->as_array()[0].find("class")->as_string() == cls);
  CHECK(!v.find("findings")->as_array()[0].find("fix")->as_string().empty());
}

}  // namespace

TEST_CASE("the made checkpoint is ready, as a native release and as an EXL3 pack") {
  for (const auto& model : {made().native, made().exl3}) {
    const Ran ran = run_preflight(preflight_of(model, made().packs));
    INFO(ran.err, ran.out);
    CHECK(ran.code == 0);
    CHECK(ran.out.find("READY") != std::string::npos);
    CHECK(ran.out.find("NOT") == std::string::npos);
    CHECK(ran.lines() == 1);  // nobody has hashed it here
    CHECK(ran.says("note: shards.proven"));
  }
}

TEST_CASE("every check ran and none was skipped on a whole checkpoint") {
  preflight::RawOptions raw = preflight_of(made().exl3, made().packs);
  raw.common.json = true;
  const auto root = json::parse(run_preflight(raw).out, "report");
  REQUIRE(root);
  CHECK(root->find("schema")->as_string() == "preflight");
  CHECK(root->find("result")->as_string() == "ready");
  CHECK(root->find("items")->as_array().size() == preflight::all_checks().size());
  // Without a GPU, a node file and a started server their checks have nothing to look at; nobody has hashed the folder.
  const std::map<std::string, std::string> other{
      {"shards.proven", "note"},       {"gpu.present", "skipped"}, {"gpu.idle", "skipped"},
      {"ports.rendezvous", "skipped"}, {"node.file", "skipped"},   {"node.address", "skipped"},
      {"link.state", "skipped"},       {"link.speed", "skipped"},  {"link.mtu", "skipped"},
      {"link.gid", "skipped"},         {"link.errors", "skipped"}, {"serve.answers", "skipped"},
      {"state.failure", "skipped"}};
  for (const json::Value& v : root->find("items")->as_array()) {
    const std::string& id = v.find("id")->as_string();
    CHECK_MESSAGE(v.find("status")->as_string() == (other.contains(id) ? other.at(id) : "ok"), id);
  }
  CHECK(root->find("inputs")->as_array().size() == 4);  // config, index, tokenizer, packing record
  CHECK(root->find("facts")->find("image_bias_sha256")->as_string().size() == 64);
}

TEST_CASE("dropped image biases: failure by default, a note for text only, supplied by a sidecar") {
  const Node node;
  TempDir sidecar;
  std::vector<safetensors::TensorData> biases;
  edit_tensors(node.model, [&](safetensors::TensorData& t) {
    if (!t.name.ends_with(".bias_vl")) return true;
    biases.push_back(std::move(t));
    return false;
  });
  fails(node, "routers.image_bias", "dropped");
  preflight::RawOptions raw = node.options();
  raw.images = "off";
  CHECK(run_preflight(raw).code == 0);

  REQUIRE(safetensors::write_file(sidecar / "bias_vl.safetensors", biases));
  raw = node.options();
  raw.bias_vl = sidecar.path();
  const Ran beside = run_preflight(raw);
  CHECK_MESSAGE(beside.code == 0, beside.err);
  CHECK(beside.out.find("sidecar") != std::string::npos);

  // Copied into the model folder without the index naming it: as good as absent, and said so.
  std::filesystem::copy_file(sidecar / "bias_vl.safetensors", node.model / "bias_vl.safetensors");
  const Ran hidden = run_preflight(node.options());
  CHECK(hidden.code == 1);
  CHECK(hidden.says("bias_vl.safetensors holds such tensors, but the index does not name it"));
}

TEST_CASE("a partial set of image biases fails even for text only; missing draft ones are a note") {
  const Node partial;
  edit_tensors(partial.model, [](safetensors::TensorData& t) { return t.name != "layers.3.ffn.gate.bias_vl"; });
  fails(partial, "routers.image_bias", "partial");
  fails(partial, "routers.image_bias", "partial", [](preflight::RawOptions& r) { r.images = "off"; });
  const Node draft;
  edit_tensors(draft.model, [](safetensors::TensorData& t) {
    return !(t.name.starts_with("mtp.") && t.name.ends_with(".bias_vl"));
  });
  const Ran ran = run_preflight(draft.options());
  CHECK(ran.code == 0);
  CHECK(ran.says("note: routers.image_bias"));
}

TEST_CASE("biases that were cast, copied or renamed fail at the router") {
  const auto change = [](const std::function<bool(safetensors::TensorData&)>& edit) {
    auto node = std::make_unique<Node>();
    edit_tensors(node->model, edit);
    return node;
  };
  fails(*change([](safetensors::TensorData& t) {
    if (t.name == "layers.2.ffn.gate.bias") {
      t.dtype = tensor::DType::kBF16;
      t.bytes.resize(t.bytes.size() / 2);
    }
    return true;
  }),
        "routers.attach", "dtype");
  fails(*change([](safetensors::TensorData& t) {
    if (t.name == "layers.2.ffn.gate.bias_vl") std::fill(t.bytes.begin(), t.bytes.end(), std::byte{0});
    return true;
  }),
        "routers.attach", "not_an_image_bias");
  fails(*change([](safetensors::TensorData& t) {
    if (t.name == "layers.2.ffn.gate.bias") t.name = "layers.2.ffn.gate.e_score_correction_bias";
    return true;
  }),
        "routers.attach", "missing_tensor");
}

TEST_CASE("configuration, tokens and token map that do not belong to the weights") {
  const Node wide;
  replace_text(wide.model / "config.json", "\"moe_intermediate_size\": ", "\"moe_intermediate_size\": 9");
  fails(wide, "tensors.table", "shape");
  const Node primes;
  replace_text(primes.model / "config.json", "\"engram_num_embeddings\": [", "\"engram_num_embeddings\": [1");
  fails(primes, "config.valid", "engram_config");
  const Node gone;
  std::filesystem::remove(gone.model / "config.json");
  fails(gone, "config.valid", "missing");
  const Node no_tokenizer;
  std::filesystem::remove(no_tokenizer.model / "tokenizer.json");
  fails(no_tokenizer, "tokenizer.special", "missing");
  const Node no_marker;
  replace_text(no_marker.model / "tokenizer.json", "<｜Assistant｜>", "<｜Assistent｜>");
  CHECK(run_preflight(no_marker.options()).says("tokenizer.special"));
  const Node eos;
  replace_text(eos.model / "config.json", "\"eos_token_id\": 1", "\"eos_token_id\": 3");
  fails(eos, "tokenizer.special", "token_id");
}

TEST_CASE("packs that are not this rank's, not there, or not what was packed") {
  const Node node;
  fails(node, "engram.rows", "missing", [](preflight::RawOptions& r) { r.world_size = 2; });
  const auto file = [&] {
    for (const auto& e : std::filesystem::directory_iterator(node.packs))
      if (e.path().extension() == ".bin") return e.path();
    return std::filesystem::path();
  }();
  const std::string bytes = *io::read_text(file);
  std::string wrong = bytes;
  wrong[4096 + 100] = static_cast<char>(wrong[4096 + 100] ^ 1);
  REQUIRE(io::write_file_atomic(file, wrong));
  fails(node, "engram.content", "content");
  std::filesystem::remove(node.packs / "engram-r0of1.json");
  // One bit among thousands of rows: without a record only the sample against the tables is left, and without tables
  // nothing.
  preflight::RawOptions raw = preflight_of(made().exl3, node.packs);
  const Ran unproven = run_preflight(raw);
  CHECK(unproven.code == 0);
  CHECK(unproven.says("warning: engram.content"));
  raw.warnings_as_errors = true;
  CHECK(run_preflight(raw).code == 10);
  // Right size, wrong content throughout: the tables in the model folder show it.
  std::rotate(wrong.begin() + 4096, wrong.begin() + 4096 + 66, wrong.end());
  REQUIRE(io::write_file_atomic(file, wrong));
  fails(node, "engram.content", "content");
}

TEST_CASE("without packs the tables in the model folder serve, and an EXL3 pack needs packs") {
  preflight::RawOptions raw = preflight_of(made().native, "");
  const Ran native = run_preflight(raw);
  CHECK(native.code == 0);
  CHECK(native.says("note: engram.rows"));
  raw.model = made().exl3;
  const Ran pack = run_preflight(raw);
  CHECK(pack.code == 1);
  CHECK(pack.says("pass --engram"));
}

TEST_CASE("too little memory fails with the figure and what to change") {
  const Node node;
  fails(node, "memory.plan", "memory", [](preflight::RawOptions& r) { r.memory = 300 << 20; });
  fails(node, "memory.plan", "memory", [](preflight::RawOptions& r) { r.max_sessions = 1 << 16; });
  preflight::RawOptions cuda = node.options();
  const MadeMachine machine;
  cuda.system_root = machine.root();
  cuda.backend = "cuda";
  cuda.memory = uint64_t{128} << 30;
  CHECK(run_preflight(cuda).code == 0);
}

TEST_CASE("--only and --skip choose, unknown ids are usage errors, foundations still speak up") {
  preflight::RawOptions raw = preflight_of(made().native, made().packs);
  raw.only = {"routers.attach"};
  const Ran one = run_preflight(raw);
  CHECK(one.code == 0);
  CHECK(one.out.find("config.valid") == std::string::npos);
  CHECK(one.out.find("routers.attach") != std::string::npos);
  raw.only = {"no.such.check"};
  CHECK(run_preflight(raw).code == 2);
  raw.only.clear();
  raw.skip = {"memory.plan"};
  raw.memory = 1;
  CHECK(run_preflight(raw).code == 0);
  raw = preflight_of(made().native / "absent", "");
  CHECK(run_preflight(raw).code == 5);
  raw = preflight_of("", "");
  CHECK(run_preflight(raw).code == 2);
  const Node broken;
  std::filesystem::remove(broken.model / "config.json");
  raw = broken.options();
  raw.only = {"disk.free"};
  CHECK(run_preflight(raw).says("config.valid"));
}
