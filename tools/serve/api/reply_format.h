#pragma once
// What a request says of its reply's form: response_format, and the fields of vLLM that mean the same. Source:
// serving.md 2.4, 4.2, 4.6.
#include <string>

#include "tools/serve/api/fields.h"
#include "tools/serve/grammar/grammar.h"

namespace dsf::serve {

struct ReplyFormat {
  grammar::Grammar grammar;                    // null: any text
  const json::Value* prompt_schema = nullptr;  // of json_schema, shown to the model; borrows the request
  bool json = false;                           // a JSON value: the opening of a call block cannot begin one
};

// Refuses more than one format, and what a grammar cannot promise, with the path of the field.
ApiResult<ReplyFormat> parse_reply_format(const Fields& fields);

}  // namespace dsf::serve
