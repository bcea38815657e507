#include <doctest/doctest.h>

#include "dsf/model/tensor_table.h"

using namespace dsf;

namespace {
std::vector<std::string> pack(std::initializer_list<std::string> matrices, const std::string& marker) {
  std::vector<std::string> out{"norm.weight"};
  for (const std::string& m : matrices) {
    for (const char* part : {".trellis", ".suh", ".svh"}) out.push_back(m + part);
    if (!marker.empty()) out.push_back(m + "." + marker);
  }
  return out;
}
std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
}  // namespace

TEST_CASE("a pack has one codebook, and it is the one its configuration declares") {
  CHECK(*model::pack_codebook(pack({"a", "b"}, "mul1"), "mul1") == "mul1");
  CHECK(*model::pack_codebook(pack({"a", "b"}, "mcg"), "") == "mcg");
  CHECK(*model::pack_codebook(pack({"a", "b"}, ""), "3inst") == "3inst");
  CHECK(model::pack_codebook(pack({}, ""), "mul1")->empty());
}

TEST_CASE("a matrix that lost its marker, or has another one, is named") {
  const auto dropped = model::pack_codebook(joined(pack({"a", "b"}, "mul1"), pack({"c"}, "")), "");
  REQUIRE(!dropped);
  CHECK(dropped.error().code == Code::kContent);
  CHECK(dropped.error().cls == "codebook");
  CHECK(dropped.error().subject == "c");
  CHECK(dropped.error().what == "has no codebook marker, 2 other matrices of this pack are mul1");
  const auto mixed = model::pack_codebook(joined(pack({"a", "b"}, "mul1"), pack({"c"}, "mcg")), "mul1");
  REQUIRE(!mixed);
  CHECK(mixed.error().what == "is marked mcg, 2 other matrices of this pack are mul1");
}

TEST_CASE("a pack that lost every marker is only seen by what its configuration declares") {
  CHECK(*model::pack_codebook(pack({"a", "b"}, ""), "") == "3inst");
  const auto lost = model::pack_codebook(pack({"a", "b"}, ""), "mul1");
  REQUIRE(!lost);
  CHECK(lost.error().what == "and every other matrix lack their codebook marker, quantization_config says mul1");
  CHECK(!model::pack_codebook(pack({"a"}, "mcg"), "mul1"));
}

TEST_CASE("the declared codebook is that of an EXL3 quantization_config, wherever it stands") {
  const auto declared = [](std::string_view text) { return model::declared_codebook(text, "config.json"); };
  CHECK(*declared(R"({"quantization_config":{"quant_method":"exl3","codebook":"mul1"}})") == "mul1");
  CHECK(*declared(R"({"text_config":{"quantization_config":{"quant_method":"exl3","codebook":"mcg"}}})") == "mcg");
  CHECK(declared(R"({"quantization_config":{"quant_method":"fp8"}})")->empty());
  CHECK(declared(R"({"quantization_config":{"quant_method":"exl3"}})")->empty());
  CHECK(declared("{}")->empty());
  CHECK(!declared("{"));
}
