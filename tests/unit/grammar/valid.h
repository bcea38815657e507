#pragma once
// A JSON Schema validator of the plain kind: a value and a schema in, an answer out. Shares no code with the grammar
// and works on values instead of text, so that it can judge what the grammar produces.
#include "dsf/json/json.h"

namespace dsf::test {

// pattern and format are not judged here. root: the document that $ref points into.
bool valid(const json::Value& value, const json::Value& schema, const json::Value& root);

}  // namespace dsf::test
