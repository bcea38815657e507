#include "tools/serve/grammar/regex.h"

#include <algorithm>
#include <memory>
#include <string>

#include "dsf/base/numeric.h"

namespace dsf::serve::grammar {
namespace {

constexpr int64_t kMaxRepeats = 65'536, kMaxEmptyRepeats = 64;
constexpr int64_t kMaxPlaces = 100'000;  // a matcher may have to keep all of them in mind at once, every byte anew
constexpr int kMaxGroups = 100;

struct Expr {
  enum class Kind { kChars, kSequence, kEither, kRepeat } kind = Kind::kSequence;
  CharSet chars;
  std::vector<Expr> parts;  // of kRepeat: one
  int64_t min = 0, max = -1;
  int64_t places = 0;  // at most so many pairs of a character and the counts of the repetitions around it

  bool may_be_empty() const {
    const auto empty = [](const Expr& e) { return e.may_be_empty(); };
    switch (kind) {
      case Kind::kChars:
        return false;
      case Kind::kSequence:
        return std::all_of(parts.begin(), parts.end(), empty);
      case Kind::kEither:
        return std::any_of(parts.begin(), parts.end(), empty);
      case Kind::kRepeat:
        return min == 0 || parts[0].may_be_empty();
    }
    return false;
  }
};

struct Alternative {
  Expr expr;
  bool begins = false, ends = false;  // "^", "$"
};

const CharSet& digits() {
  static const CharSet set{{'0', '9'}};
  return set;
}
const CharSet& words() {
  static const CharSet set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
// What every dialect calls space, and what any of them does.
const CharSet& spaces() {
  static const CharSet set{{'\t', '\r'}, {' ', ' '}};
  return set;
}
const CharSet& spaces_of_any_dialect() {
  static const CharSet set{{'\t', '\r'},     {0x1C, ' '},      {0x85, 0x85},     {0xA0, 0xA0},
                           {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                           {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
// The complement within ASCII: beyond it dialects differ.
CharSet ascii_without(const CharSet& set) {
  CharSet out = complement(set);
  std::erase_if(out, [](const CharRange& r) { return r.lo > 0x7F; });
  for (CharRange& r : out) r.hi = std::min<uint32_t>(r.hi, 0x7F);
  return out;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& subject) : text_(text), subject_(subject) {}

  Result<std::vector<Alternative>> alternatives() {
    std::vector<Alternative> out;
    do {
      Alternative a;
      a.begins = take('^');
      DSF_TRY(a.expr, sequence());
      a.ends = take('$');
      if (!done() && peek() != '|') return wrong(peek() == ')' ? "a \")\" without its \"(\"" : "\"$\" before the end");
      out.push_back(std::move(a));
    } while (take('|'));
    return out;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return text_[at_]; }
  bool take(char c) {
    if (done() || peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view s) {
    if (!text_.substr(at_).starts_with(s)) return false;
    at_ += s.size();
    return true;
  }
  Unexpected wrong(const std::string& what) const {
    return fail(Code::kUsage, subject_, "the regular expression has " + what + " at character " + std::to_string(at_));
  }
  Unexpected unsupported(const std::string& what) const {
    return fail(Code::kUsage, subject_,
                "regular expressions with " + what + " are not supported (character " + std::to_string(at_) + ")");
  }

  Result<Expr> either() {
    Expr out{Expr::Kind::kEither, {}, {}};
    do {
      DSF_TRY(Expr part, sequence());
      DSF_OK(append(out, std::move(part)));
    } while (take('|'));
    return out;
  }

  Result<Expr> sequence() {
    Expr out;
    while (!done() && peek() != '|' && peek() != ')' && peek() != '$') {
      DSF_TRY(Expr part, atom());
      DSF_TRY(part, quantified(std::move(part)));
      DSF_OK(append(out, std::move(part)));
    }
    return out;
  }

  Result<void> append(Expr& out, Expr part, int64_t times = 1) {
    out.places += times * part.places;  // 65,536 * 100,000 at most
    if (out.places > kMaxPlaces) return unsupported("more than 100000 nested repetitions");
    out.parts.push_back(std::move(part));
    return {};
  }

  Result<Expr> quantified(Expr part) {
    while (!done()) {
      Expr out{Expr::Kind::kRepeat, {}, {}, 0, -1};
      if (take('*')) {
      } else if (take('+')) {
        out.min = 1;
      } else if (take('?')) {
        out.max = 1;
      } else if (peek() == '{') {
        DSF_OK(braces(out));
      } else {
        return part;
      }
      if (part.kind == Expr::Kind::kRepeat) return wrong("two quantifiers in a row");
      take('?');
      if (!done() && peek() == '+') return unsupported("possessive quantifiers");
      if (part.may_be_empty() && std::max(out.min, out.max) > kMaxEmptyRepeats)
        return unsupported("many repetitions of what may be empty");
      const int64_t times = std::max({int64_t{1}, out.min, out.max});
      DSF_OK(append(out, std::move(part), times));
      part = std::move(out);
    }
    return part;
  }

  Result<void> braces(Expr& out) {
    ++at_;
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return wrong("a \"{\" without its \"}\"");
    const std::string_view inside = text_.substr(at_, end - at_);
    const size_t comma = inside.find(',');
    const auto low = parse_i64(inside.substr(0, comma));
    std::optional<int64_t> high = low;
    if (comma != std::string_view::npos) high = comma + 1 == inside.size() ? -1 : parse_i64(inside.substr(comma + 1));
    if (!low || !high || *low < 0 || (*high >= 0 && *high < *low)) return wrong("a wrong repetition");
    if (*low > kMaxRepeats || *high > kMaxRepeats) return unsupported("more than 65536 repetitions");
    out.min = *low;
    out.max = *high;
    at_ = end + 1;
    return {};
  }

  Result<Expr> atom() {
    if (take('(')) return group();
    CharSet chars;
    if (take('[')) {
      DSF_TRY(chars, char_class());
    } else if (take('.')) {
      chars = complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
    } else if (take('\\')) {
      DSF_TRY(chars, escape());
    } else if (peek() == '^') {
      return unsupported("\"^\" after the beginning");
    } else if (std::string_view("*+?{}").find(peek()) != std::string_view::npos) {
      return wrong("a quantifier without anything to repeat");
    } else {
      const uint32_t c = character();
      chars = {{c, c}};
    }
    return Expr{.kind = Expr::Kind::kChars, .chars = std::move(chars), .parts = {}, .places = 1};
  }

  Result<Expr> group() {
    if (!take("?:") && !done() && peek() == '?') return unsupported("lookaround or named groups");
    if (++depth_ > kMaxGroups) return unsupported("groups nested this deep");
    DSF_TRY(Expr out, either());
    --depth_;
    if (!done() && peek() == '$') return unsupported("\"$\" inside a group");
    if (!take(')')) return wrong("a \"(\" without its \")\"");
    return out;
  }

  // One code point of the pattern, which is valid UTF-8.
  uint32_t character() {
    const auto b = static_cast<unsigned char>(text_[at_++]);
    if (b < 0x80) return b;
    const int more = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
    uint32_t c = b & (0x3Fu >> more);
    for (int i = 0; i < more && !done(); ++i) c = c << 6 | (static_cast<unsigned char>(text_[at_++]) & 0x3F);
    return c;
  }

  Result<uint32_t> hex(size_t n) {
    uint32_t out = 0;
    for (size_t i = 0; i < n; ++i) {
      const std::string_view all = "0123456789abcdef0123456789ABCDEF";
      const size_t digit = done() ? std::string_view::npos : all.find(peek());
      if (digit == std::string_view::npos) return wrong("a code without its digits");
      out = out << 4 | static_cast<uint32_t>(digit & 15);
      ++at_;
    }
    return out;
  }

  // What follows a backslash; a set of more than one character for the classes.
  Result<CharSet> escape() {
    if (done()) return wrong("a backslash");
    const char c = peek();
    const auto one = [](uint32_t code) { return CharSet{{code, code}}; };
    if (static_cast<unsigned char>(c) >= 0x80) return one(character());
    ++at_;
    switch (c) {
      case 'd':
        return digits();
      case 'w':
        return words();
      case 's':
        return spaces();
      case 'D':
        return ascii_without(digits());
      case 'W':
        return ascii_without(words());
      case 'S':
        return complement(spaces_of_any_dialect());
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
      case 'u': {
        DSF_TRY(const uint32_t code, hex(c == 'x' ? 2 : 4));
        return one(code);
      }
      default:
        break;
    }
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) {
      --at_;
      return unsupported(std::string("\\") + c);
    }
    return one(static_cast<unsigned char>(c));
  }

  Result<CharSet> char_class() {
    const bool negated = take('^');
    CharSet out;
    bool first = true;
    while (!done() && (first || peek() != ']')) {
      first = false;
      DSF_TRY(CharSet from, class_member());
      const bool range = from.size() == 1 && from[0].lo == from[0].hi && text_.substr(at_).size() > 1 &&
                         peek() == '-' && text_[at_ + 1] != ']';
      if (range) {
        ++at_;
        DSF_TRY(const CharSet to, class_member());
        if (to.size() != 1 || to[0].lo != to[0].hi || to[0].lo < from[0].lo) return wrong("a wrong range");
        from[0].hi = to[0].hi;
      }
      out.insert(out.end(), from.begin(), from.end());
    }
    if (!take(']')) return wrong("a \"[\" without its \"]\"");
    return negated ? complement(out) : normalized(std::move(out));
  }
  Result<CharSet> class_member() {
    if (take('\\')) {
      if (take('b')) return CharSet{{'\b', '\b'}};
      return escape();
    }
    const uint32_t c = character();
    return CharSet{{c, c}};
  }

  std::string_view text_;
  const std::string& subject_;
  size_t at_ = 0;
  int depth_ = 0;
};

class Builder {
 public:
  Builder(Network& net, Spelling spelling) : net_(net), spelling_(spelling) {}

  void add(NodeId from, const Expr& e, NodeId to) {
    switch (e.kind) {
      case Expr::Kind::kChars:
        return one_of(net_, from, e.chars, spelling_, to);
      case Expr::Kind::kEither:
        for (const Expr& part : e.parts) add(from, part, to);
        return;
      case Expr::Kind::kSequence:
        for (const Expr& part : e.parts) {
          const NodeId next = net_.node();
          add(from, part, next);
          from = next;
        }
        return net_.skip(from, to);
      case Expr::Kind::kRepeat: {
        const NodeId rule = net_.node();
        add(rule, e.parts[0], net_.finish());
        return net_.repeat(from, rule, e.min, e.max, to);
      }
    }
  }
  void anything(NodeId from, NodeId to) {
    const NodeId loop = net_.node();
    net_.skip(from, loop);
    one_of(net_, loop, all_chars(), spelling_, loop);
    net_.skip(loop, to);
  }

 private:
  Network& net_;
  Spelling spelling_;
};

}  // namespace

Result<void> regex(Network& net, NodeId from, std::string_view pattern, Match match, Spelling spelling, NodeId to,
                   const std::string& subject) {
  DSF_TRY(const std::vector<Alternative> alternatives, Parser(pattern, subject).alternatives());
  Builder build(net, spelling);
  for (const Alternative& a : alternatives) {
    const NodeId begin = net.node(), end = net.node();
    const auto bound = [&](NodeId x, NodeId y, bool anchored) {
      if (anchored || match == Match::kWhole) return net.skip(x, y);
      build.anything(x, y);
    };
    bound(from, begin, a.begins);
    build.add(begin, a.expr, end);
    bound(end, to, a.ends);
  }
  return {};
}

}  // namespace dsf::serve::grammar
