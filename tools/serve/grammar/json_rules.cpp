#include "tools/serve/grammar/json_rules.h"

#include <map>

#include "dsf/json/json.h"
#include "tools/serve/grammar/chars.h"
#include "tools/serve/grammar/decimals.h"

namespace dsf::serve::grammar {
namespace {

constexpr int kMaxIndent = 32;

// Code points of valid UTF-8.
std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < text.size();) {
    const auto b = static_cast<unsigned char>(text[i]);
    const size_t n = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    uint32_t c = n == 1 ? b : b & (0xFFu >> (n + 1));
    for (size_t k = 1; k < n && i + k < text.size(); ++k) c = c << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3F);
    out.push_back(c);
    i += n;
  }
  return out;
}

}  // namespace

void JsonRules::space(NodeId from, NodeId to) {
  if (space_ < 0) {
    space_ = net_.node();
    const NodeId end = net_.finish();
    NodeId line = net_.finish();
    net_.skip(space_, end);
    net_.byte(space_, ' ', ' ', end);
    net_.byte(space_, '\n', '\n', line);
    for (int i = 0; i < kMaxIndent; ++i) {
      const NodeId next = net_.finish();
      net_.byte(line, ' ', ' ', next);
      line = next;
    }
  }
  net_.call(from, space_, to);
}

void JsonRules::open(NodeId from, char bracket, NodeId to) {
  const NodeId next = net_.node();
  net_.byte(from, static_cast<uint8_t>(bracket), static_cast<uint8_t>(bracket), next);
  space(next, to);
}

void JsonRules::comma(NodeId from, NodeId to) { open(from, ',', to); }
void JsonRules::colon(NodeId from, NodeId to) { open(from, ':', to); }

void JsonRules::close(NodeId from, char bracket, NodeId to) {
  const NodeId next = net_.node();
  space(from, next);
  net_.byte(next, static_cast<uint8_t>(bracket), static_cast<uint8_t>(bracket), to);
}

void JsonRules::any_string(NodeId from, NodeId to) { net_.call(from, string(), to); }

NodeId JsonRules::string() {
  if (string_ >= 0) return string_;
  string_ = net_.node();
  const NodeId body = net_.node();
  net_.byte(string_, '"', '"', body);
  any_json_char(net_, body, body);
  net_.byte(body, '"', '"', net_.finish());
  return string_;
}

NodeId JsonRules::json_char() {
  if (char_ >= 0) return char_;
  char_ = net_.node();
  any_json_char(net_, char_, net_.finish());
  return char_;
}

NodeId JsonRules::value() {
  if (value_ >= 0) return value_;
  value_ = net_.node();
  const NodeId end = net_.finish();
  net_.call(value_, object(), end);
  net_.call(value_, array(), end);
  net_.call(value_, string(), end);
  number(net_, value_, {}, end);
  net_.texts(value_, {"true", "false", "null"}, end);
  return value_;
}

NodeId JsonRules::object() {
  if (object_ >= 0) return object_;
  object_ = net_.node();
  const NodeId inside = net_.node(), key = net_.node(), named = net_.node(), member = net_.node(), after = net_.node(),
               end = net_.finish();
  open(object_, '{', inside);
  net_.byte(inside, '}', '}', end);
  net_.skip(inside, key);
  any_string(key, named);
  colon(named, member);
  net_.call(member, value(), after);
  comma(after, key);
  close(after, '}', end);
  return object_;
}

NodeId JsonRules::array() {
  if (array_ >= 0) return array_;
  array_ = net_.node();
  const NodeId inside = net_.node(), item = net_.node(), after = net_.node(), end = net_.finish();
  open(array_, '[', inside);
  net_.byte(inside, ']', ']', end);
  net_.skip(inside, item);
  net_.call(item, value(), after);
  comma(after, item);
  close(after, ']', end);
  return array_;
}

// Along the spelling of a text only characters that leave it are allowed, and no escapes but the text's own: another
// spelling of the next character would be the same text to a reader.
void JsonRules::string_except(NodeId from, const std::vector<std::string>& texts, NodeId to) {
  struct Place {
    NodeId node;
    std::map<uint32_t, size_t> next;
    bool is_text = false;
  };
  std::vector<Place> places{{net_.node(), {}, false}};
  for (const std::string& text : texts) {
    size_t here = 0;
    for (const uint32_t c : code_points(text)) {
      const auto [entry, added] = places[here].next.try_emplace(c, places.size());
      here = entry->second;
      if (added) places.push_back({net_.node(), {}, false});
    }
    places[here].is_text = true;
  }
  const NodeId free = net_.node(), end = net_.node();
  any_json_char(net_, free, free);
  net_.byte(free, '"', '"', end);
  net_.byte(from, '"', '"', places[0].node);
  for (const Place& place : places) {
    CharSet leaves{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};  // what needs an escape
    for (const auto& [c, next] : place.next) {
      one_of(net_, place.node, {{c, c}}, Spelling::kInJson, places[next].node);
      leaves.push_back({c, c});
    }
    one_of(net_, place.node, complement(leaves), Spelling::kPlain, free);
    if (!place.is_text) net_.byte(place.node, '"', '"', end);
  }
  net_.skip(end, to);
}

}  // namespace dsf::serve::grammar
