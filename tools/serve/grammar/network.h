#pragma once
// A language over bytes as a recursive transition network: nodes, byte edges, and calls of other rules.
//
// A rule is named by its first node; it ends at any of its nodes that may finish. Built by one thread, then sealed; a
// sealed network is immutable and any number of threads may read it. sealing proves what matching relies on: from every
// reachable place some text leads to the end (edges that lead nowhere are removed), and no rule can call itself before
// it has read a byte (that would be an endless stack). Plain memory, no views.
#include <cstdint>
#include <string_view>
#include <vector>

#include "dsf/base/result.h"

namespace dsf::serve::grammar {

using NodeId = int32_t;

struct ByteEdge {
  uint8_t lo, hi;
  NodeId to;
};
struct CallEdge {
  NodeId rule, to;
};
// A node with a repetition has nothing else: it matches `rule` between min and max times, then goes on at `to`.
struct Repetition {
  NodeId rule = -1, to = -1;
  int64_t min = 0, max = -1;  // max -1: any number
};

struct Node {
  std::vector<ByteEdge> bytes;
  std::vector<CallEdge> calls;
  std::vector<NodeId> skips;
  int32_t repetition = -1;  // index into Network::repetitions()
  bool finishes = false;
};

class Network {
 public:
  NodeId node();
  // A node that finishes: the end of a rule.
  NodeId finish();
  void byte(NodeId from, uint8_t lo, uint8_t hi, NodeId to);
  void text(NodeId from, std::string_view text, NodeId to);
  // One of the texts; they share their beginnings, so that many of them stay cheap.
  void texts(NodeId from, const std::vector<std::string>& texts, NodeId to);
  void skip(NodeId from, NodeId to);
  void call(NodeId from, NodeId rule, NodeId to);
  void repeat(NodeId from, NodeId rule, int64_t min, int64_t max, NodeId to);

  // Errors, with subject "" and code kUsage: nothing fits the rule `start`, a rule that contains itself without a byte
  // before, too many nodes.
  Result<void> seal(NodeId start);

  NodeId start() const { return start_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Repetition>& repetitions() const { return repetitions_; }
  // Bytes that no edge tells apart have one class: [256] class of each byte, and how many there are.
  const std::vector<uint8_t>& byte_class() const { return byte_class_; }
  int n_classes() const { return n_classes_; }

 private:
  using Flags = std::vector<char>;
  Flags fixpoint(bool with_bytes) const;
  void prune(const Flags& useful);
  bool calls_itself_at_once(const Flags& empty) const;
  void classify_bytes();

  std::vector<Node> nodes_;
  std::vector<Repetition> repetitions_;
  bool too_large_ = false;  // nothing more is added; seal() says so
  NodeId start_ = -1;
  std::vector<uint8_t> byte_class_;
  int n_classes_ = 0;
};

}  // namespace dsf::serve::grammar
