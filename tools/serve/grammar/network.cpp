#include "tools/serve/grammar/network.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <string>

#include "dsf/base/check.h"

namespace dsf::serve::grammar {
namespace {

// Some 50 MB; a request may hold a schema of any size.
constexpr size_t kMaxNodes = 400'000, kMaxRepetitions = 100'000;

size_t at(NodeId id) { return static_cast<size_t>(id); }

}  // namespace

NodeId Network::node() {
  too_large_ = too_large_ || nodes_.size() >= kMaxNodes || repetitions_.size() >= kMaxRepetitions;
  if (too_large_) return 0;
  nodes_.emplace_back();
  return static_cast<NodeId>(nodes_.size()) - 1;
}

NodeId Network::finish() {
  const NodeId out = node();
  nodes_[at(out)].finishes = true;
  return out;
}

void Network::byte(NodeId from, uint8_t lo, uint8_t hi, NodeId to) {
  if (!too_large_) nodes_[at(from)].bytes.push_back({lo, hi, to});
}

void Network::text(NodeId from, std::string_view text, NodeId to) {
  if (text.empty()) return skip(from, to);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto b = static_cast<uint8_t>(text[i]);
    const NodeId next = i + 1 == text.size() ? to : node();
    byte(from, b, b, next);
    from = next;
  }
}

void Network::texts(NodeId from, const std::vector<std::string>& texts, NodeId to) {
  std::map<std::pair<NodeId, uint8_t>, NodeId> known;
  for (const std::string& text : texts) {
    if (too_large_) return;
    NodeId here = from;
    for (const char c : text) {
      const auto b = static_cast<uint8_t>(c);
      const auto [entry, added] = known.try_emplace({here, b}, -1);
      if (added) {
        entry->second = node();
        byte(here, b, b, entry->second);
      }
      here = entry->second;
    }
    skip(here, to);
  }
}

void Network::skip(NodeId from, NodeId to) {
  if (!too_large_) nodes_[at(from)].skips.push_back(to);
}

void Network::call(NodeId from, NodeId rule, NodeId to) {
  if (!too_large_) nodes_[at(from)].calls.push_back({rule, to});
}

void Network::repeat(NodeId from, NodeId rule, int64_t min, int64_t max, NodeId to) {
  const NodeId loop = node();
  skip(from, loop);
  if (too_large_) return;
  nodes_[at(loop)].repetition = static_cast<int32_t>(repetitions_.size());
  repetitions_.push_back({rule, to, min, max});
}

// Which nodes can reach the end of their rule: over any edges, or (with_bytes false) without reading anything.
Network::Flags Network::fixpoint(bool with_bytes) const {
  Flags good(nodes_.size(), 0);
  const auto holds = [&](const Node& n) {
    if (n.finishes) return true;
    const auto is_good = [&](NodeId id) { return good[at(id)] != 0; };
    if (n.repetition >= 0) {
      const Repetition& r = repetitions_[at(n.repetition)];
      return is_good(r.to) && (r.min == 0 || is_good(r.rule));
    }
    if (std::any_of(n.skips.begin(), n.skips.end(), is_good)) return true;
    if (with_bytes && std::any_of(n.bytes.begin(), n.bytes.end(), [&](const ByteEdge& e) { return is_good(e.to); }))
      return true;
    return std::any_of(n.calls.begin(), n.calls.end(),
                       [&](const CallEdge& e) { return is_good(e.rule) && is_good(e.to); });
  };
  // Nodes are made front to back, so going backwards settles nearly everything in one pass.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = nodes_.size(); i-- > 0;) {
      if (good[i] == 0 && holds(nodes_[i])) good[i] = 1, changed = true;
    }
  }
  return good;
}

void Network::prune(const Flags& useful) {
  const auto useless = [&](NodeId id) { return useful[at(id)] == 0; };
  for (Node& n : nodes_) {
    std::erase_if(n.bytes, [&](const ByteEdge& e) { return useless(e.to); });
    std::erase_if(n.skips, useless);
    std::erase_if(n.calls, [&](const CallEdge& e) { return useless(e.to) || useless(e.rule); });
  }
  for (Repetition& r : repetitions_) {
    if (useless(r.rule)) r.max = 0;
  }
}

// Tarjan's components over the steps that read nothing; a call inside one component comes back to itself.
bool Network::calls_itself_at_once(const Flags& empty) const {
  struct Step {
    NodeId to;
    bool deeper;
  };
  const auto steps_of = [&](const Node& n) {
    std::vector<Step> out;
    for (const NodeId to : n.skips) out.push_back({to, false});
    const auto call = [&](NodeId rule, NodeId to, bool may_skip) {
      out.push_back({rule, true});
      if (may_skip) out.push_back({to, false});
    };
    for (const CallEdge& e : n.calls) call(e.rule, e.to, empty[at(e.rule)] != 0);
    if (n.repetition >= 0) {
      const Repetition& r = repetitions_[at(n.repetition)];
      if (r.max != 0) call(r.rule, r.to, r.min == 0 || empty[at(r.rule)] != 0);
    }
    return out;
  };
  const size_t n = nodes_.size();
  std::vector<int32_t> order(n, -1), low(n, 0), component(n, -1);
  std::vector<NodeId> open;
  struct Frame {
    NodeId node;
    std::vector<Step> steps;
    size_t next = 0;
  };
  int32_t count = 0, n_components = 0;
  for (size_t root = 0; root < n; ++root) {
    if (order[root] >= 0) continue;
    std::vector<Frame> frames;
    const auto enter = [&](NodeId id) {
      order[at(id)] = low[at(id)] = count++;
      open.push_back(id);
      frames.push_back({id, steps_of(nodes_[at(id)])});
    };
    enter(static_cast<NodeId>(root));
    while (!frames.empty()) {
      Frame& top = frames.back();
      const NodeId id = top.node;
      if (top.next < top.steps.size()) {
        const NodeId to = top.steps[top.next++].to;
        if (order[at(to)] < 0) {
          enter(to);
        } else if (component[at(to)] < 0) {
          low[at(id)] = std::min(low[at(id)], order[at(to)]);
        }
        continue;
      }
      if (low[at(id)] == order[at(id)]) {
        while (component[at(id)] < 0) {
          component[at(open.back())] = n_components;
          open.pop_back();
        }
        ++n_components;
      }
      frames.pop_back();
      if (!frames.empty()) {
        int32_t& parent = low[at(frames.back().node)];
        parent = std::min(parent, low[at(id)]);
      }
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (const Step& s : steps_of(nodes_[i])) {
      if (s.deeper && component[i] == component[at(s.to)]) return true;
    }
  }
  return false;
}

void Network::classify_bytes() {
  std::bitset<257> begins;
  begins.set(0);
  for (const Node& n : nodes_) {
    for (const ByteEdge& e : n.bytes) begins.set(e.lo), begins.set(e.hi + 1u);
  }
  byte_class_.assign(256, 0);
  n_classes_ = 0;
  for (size_t b = 0; b < 256; ++b) {
    if (b > 0 && begins[b]) ++n_classes_;
    byte_class_[b] = static_cast<uint8_t>(n_classes_);
  }
  ++n_classes_;
}

Result<void> Network::seal(NodeId start) {
  DSF_CHECK(start_ < 0, "a network is sealed once");
  if (too_large_) return fail(Code::kUsage, {}, "the format is too large for this server");
  const Flags useful = fixpoint(true);
  if (useful[at(start)] == 0) return fail(Code::kUsage, {}, "no text can fit this format");
  prune(useful);
  if (calls_itself_at_once(fixpoint(false)))
    return fail(Code::kUsage, {}, "the format refers to itself without anything in between");
  classify_bytes();
  start_ = start;
  return {};
}

}  // namespace dsf::serve::grammar
