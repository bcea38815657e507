#pragma once
// From submitted requests to the HTTP response, streamed or whole: the part that chat and raw completions share.
//
// Runs on the connection's thread. A Reply turns the tokens of one request into the JSON of its endpoint; the driver
// submits, waits, notices that the client has gone, sends keep-alives, and writes. Source:
// serving.md 4.3, 4.4, 4.7, 7.6.
#include <memory>
#include <string>
#include <vector>

#include "dsf/json/json.h"
#include "tools/serve/api/params.h"
#include "tools/serve/api/reply_format.h"
#include "tools/serve/api/service.h"

namespace dsf::serve {

struct Usage {
  int64_t prompt = 0, completion = 0, reasoning = 0, cached = 0;
  Usage& operator+=(const Usage& other);
  json::Value value() const;
};

class Reply {
 public:
  virtual ~Reply() = default;
  // A chunk choice to send before any token, or null for none.
  virtual json::Value opening() = 0;
  virtual void prompt(std::vector<Choice> /*choices*/) {}
  // One token of the reply; false once the reply is complete whatever the model would say next (stop string, closed
  // calls).
  virtual bool token(const Choice& choice) = 0;
  // The end; nullptr when token() ended it. Not called for failures.
  virtual void finish(const End* end) = 0;
  // Choices of the chunks that became ready since the last call (streaming), the one with the finish reason after
  // finish(); not called again then.
  virtual std::vector<json::Value> take_chunks() = 0;
  // The whole choice (not streaming). After finish().
  virtual json::Value whole() = 0;
  virtual Usage usage() const = 0;
  virtual std::string finish_reason() const = 0;
  virtual void describe(GenerationRecord& /*record*/) const {}
};

struct Part {
  GenerationRequest request;
  std::unique_ptr<Reply> reply;
  bool first_of_prompt = true;  // false: a further choice of a prompt that has been counted
};

struct Envelope {
  std::string id, object, chunk_object, model;
  int64_t created_s = 0;
  StreamParams stream;
};

// Parts become choices in their order; in a stream their chunks come as they are made. Answers the request completely,
// errors included.
void generate(Context& context, const Envelope& envelope, std::vector<Part> parts, http::ResponseWriter& out);

// Prompt ids and common parameters to a scheduler request: context check, limits, seed, deadlines. param: "messages" or
// "prompt". choice: which of the request's n replies to this prompt.
ApiResult<GenerationRequest> make_request(const Context& context, const CommonParams& common,
                                          std::vector<int32_t> prompt, const std::string& param, uint64_t choice = 0);

// The filter that holds a reply to its format. continued: content that stands already. opening: what the reply may
// begin with instead, or empty. Refuses a continued text that begins nothing of the format.
ApiResult<std::unique_ptr<TokenFilter>> format_filter(const Context& context, const ReplyFormat& format,
                                                      const std::string& continued = {}, std::string opening = {});

// "logprobs.content" entry of the chat format.
json::Value chat_logprob(const tokenizer::Tokenizer& tokenizer, const Choice& choice);

}  // namespace dsf::serve
