// The codebook of a whole pack. Source: exl3.md sections 2 and 10.
#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include "dsf/exl3/matrix.h"
#include "dsf/json/json.h"
#include "dsf/model/tensor_table.h"

namespace dsf::model {
namespace {

struct Group {
  std::string name;
  size_t n = 0;
  std::string first;  // a matrix of it, for the message
};

Unexpected wrong(const std::string& matrix, std::string what) {
  return fail(Code::kContent, matrix, std::move(what), "fetch the pack again, or repair the program that wrote it",
              "codebook");
}

}  // namespace

Result<std::string> pack_codebook(std::span<const std::string> names, const std::string& declared) {
  std::array<Group, 3> groups;
  for (size_t i = 0; i < groups.size(); ++i) groups[i].name = exl3::codebook_name(static_cast<exl3::Codebook>(i));
  const std::unordered_set<std::string_view> all(names.begin(), names.end());
  constexpr std::string_view kTrellis = ".trellis";
  for (const std::string& name : names) {
    if (!name.ends_with(kTrellis)) continue;
    const std::string matrix = name.substr(0, name.size() - kTrellis.size());
    const auto codebook = all.contains(matrix + ".mul1")  ? exl3::Codebook::kMul1
                          : all.contains(matrix + ".mcg") ? exl3::Codebook::kMcg
                                                          : exl3::Codebook::k3Inst;
    Group& group = groups[static_cast<size_t>(codebook)];
    if (group.n++ == 0) group.first = matrix;
  }
  const auto larger = [](const Group& a, const Group& b) { return a.n < b.n; };
  const Group& most = *std::max_element(groups.begin(), groups.end(), larger);
  if (most.n == 0) return std::string();
  for (const Group& g : groups) {
    if (g.n == 0 || g.name == most.name) continue;
    return wrong(g.first, std::string(g.name == "3inst" ? "has no codebook marker" : "is marked " + g.name) + ", " +
                              std::to_string(most.n) + " other matrices of this pack are " + most.name);
  }
  if (!declared.empty() && declared != most.name)
    return wrong(most.first, (most.name == "3inst" ? "and every other matrix lack their codebook marker"
                                                   : "and every other matrix are marked " + most.name) +
                                 std::string(", quantization_config says ") + declared);
  return most.name;
}

Result<std::string> declared_codebook(std::string_view config_json, std::string_view subject) {
  DSF_TRY(const json::Value root, json::parse(config_json, subject));
  const json::Value* q = root.find("quantization_config");
  if (q == nullptr) {
    if (const json::Value* text = root.find("text_config")) q = text->find("quantization_config");
  }
  const json::Value* method = q == nullptr ? nullptr : q->find("quant_method");
  const json::Value* codebook = q == nullptr ? nullptr : q->find("codebook");
  if (method == nullptr || codebook == nullptr || !method->is_string() || method->as_string() != "exl3")
    return std::string();
  if (!codebook->is_string()) return std::string();
  return codebook->as_string();
}

}  // namespace dsf::model
