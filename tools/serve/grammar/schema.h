#pragma once
// JSON Schema to a language of JSON texts.
//
// Every text of the language is valid under the schema; not every valid text is in it: members come in the order of
// "properties", and where a schema leaves "additionalProperties" open beside declared ones, only declared ones come
// (README.md has the whole list). What cannot be promised is refused: kUsage, the subject is the path of the schema's
// part, the text names the keyword.
#include <string>

#include "dsf/json/json.h"
#include "tools/serve/grammar/json_rules.h"
#include "tools/serve/grammar/network.h"

namespace dsf::serve::grammar {

// The rule that a schema stands for. schema is only read during the call.
Result<NodeId> schema_rule(Network& net, JsonRules& json, const json::Value& schema, const std::string& path);

}  // namespace dsf::serve::grammar
