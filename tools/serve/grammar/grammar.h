#pragma once
// What a reply may be, compiled once per request: any JSON object, a JSON Schema, a regular expression, or one of a few
// texts.
//
// A Grammar is immutable; any number of threads and matchers may share one. Errors: kUsage with the path inside the
// request as subject: a server answers 400 with it. Source: serving.md 4.2 (response_format, guided_*), 4.6.
#include <memory>
#include <string>
#include <vector>

#include "dsf/json/json.h"
#include "tools/serve/grammar/network.h"

namespace dsf::serve::grammar {

using Grammar = std::shared_ptr<const Network>;

Result<Grammar> any_object();
// path: where the schema stands in the request.
Result<Grammar> of_schema(const json::Value& schema, const std::string& path);
// The whole reply matches the expression.
Result<Grammar> of_regex(std::string_view pattern, const std::string& path);
// The reply is one of the texts; none may be empty.
Result<Grammar> of_texts(const std::vector<std::string>& texts, const std::string& path);

}  // namespace dsf::serve::grammar
