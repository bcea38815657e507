#include "tools/verify/statement.h"

#include "dsf/codec/sha256.h"
#include "dsf/json/json.h"

namespace dsf::verify {

std::string in_toto_statement(const Report& report, const std::string& name) {
  codec::Sha256 root;
  json::Array resources;
  for (const FileReport& f : report.files) {  // by path
    const auto digest = codec::Digest::from_hex(f.sha256);
    if (!digest || f.status != "ok") continue;
    root.update(digest->bytes);
    resources.push_back(json::Object{{"name", f.path}, {"algorithm", "sha256"}, {"digest", f.sha256}});
  }
  const json::Value statement = json::Object{
      {"_type", "https://in-toto.io/Statement/v1"},
      {"subject", json::Array{json::Object{{"name", name}, {"digest", json::Object{{"sha256", root.finish().hex()}}}}}},
      {"predicateType", "https://model_signing/signature/v1.0"},
      {"predicate", json::Object{{"serialization", json::Object{{"method", "files"},
                                                                {"hash_type", "sha256"},
                                                                {"allow_symlinks", false},
                                                                {"ignore_paths", json::Array{".cache"}}}},
                                 {"resources", std::move(resources)}}}};
  return json::dump(statement, json::Style::kPretty) + "\n";
}

}  // namespace dsf::verify
