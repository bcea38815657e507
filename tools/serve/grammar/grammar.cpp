#include "tools/serve/grammar/grammar.h"

#include <algorithm>

#include "tools/serve/grammar/json_rules.h"
#include "tools/serve/grammar/regex.h"
#include "tools/serve/grammar/schema.h"

namespace dsf::serve::grammar {
namespace {

Result<Grammar> sealed(std::unique_ptr<Network> net, NodeId start, const std::string& path) {
  auto done = net->seal(start);
  if (!done) {
    done.error().subject = path;
    return fail(std::move(done).error());
  }
  return Grammar(std::move(net));
}

}  // namespace

Result<Grammar> any_object() {
  auto net = std::make_unique<Network>();
  const NodeId start = JsonRules(*net).object();
  return sealed(std::move(net), start, {});
}

Result<Grammar> of_schema(const json::Value& schema, const std::string& path) {
  auto net = std::make_unique<Network>();
  JsonRules rules(*net);
  DSF_TRY(const NodeId start, schema_rule(*net, rules, schema, path));
  return sealed(std::move(net), start, path);
}

Result<Grammar> of_regex(std::string_view pattern, const std::string& path) {
  auto net = std::make_unique<Network>();
  const NodeId start = net->node();
  DSF_OK(regex(*net, start, pattern, Match::kWhole, Spelling::kPlain, net->finish(), path));
  return sealed(std::move(net), start, path);
}

Result<Grammar> of_texts(const std::vector<std::string>& texts, const std::string& path) {
  const bool empty = std::any_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); });
  if (texts.empty() || empty) return fail(Code::kUsage, path, "must be a list of texts, none of them empty");
  auto net = std::make_unique<Network>();
  const NodeId start = net->node();
  net->texts(start, texts, net->finish());
  return sealed(std::move(net), start, path);
}

}  // namespace dsf::serve::grammar
