#pragma once
// The parts of JSON text that every format shares, made once per network when first asked for.
//
// Between the parts of an object or array the model may write nothing, one space, or a line feed and at most 32 spaces:
// enough for pretty printing, never endless. Source: serving.md 4.6; RFC 8259.
#include <string>
#include <vector>

#include "tools/serve/grammar/network.h"

namespace dsf::serve::grammar {

class JsonRules {
 public:
  explicit JsonRules(Network& net) : net_(net) {}

  // Rules, to be called.
  NodeId value();   // any JSON value
  NodeId object();  // any object
  NodeId array();
  NodeId string();
  NodeId json_char();  // one character inside a string

  // Edges from one node to another.
  void space(NodeId from, NodeId to);
  void comma(NodeId from, NodeId to);               // "," and space
  void colon(NodeId from, NodeId to);               // ":" and space
  void open(NodeId from, char bracket, NodeId to);  // the bracket and space
  void close(NodeId from, char bracket, NodeId to);
  void any_string(NodeId from, NodeId to);
  // Any string that is none of these (UTF-8), whatever escapes a reader resolves.
  void string_except(NodeId from, const std::vector<std::string>& texts, NodeId to);

 private:
  Network& net_;
  NodeId space_ = -1, value_ = -1, object_ = -1, array_ = -1, string_ = -1, char_ = -1;
};

}  // namespace dsf::serve::grammar
