#include <array>
#include <charconv>
#include <cmath>

#include "dsf/base/check.h"
#include "dsf/json/json.h"

namespace dsf::json {

std::string quote(std::string_view utf8) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (char c : utf8) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (const auto u = static_cast<unsigned char>(c); u < 0x20) {
          out += "\\u00";
          out += kHex[u >> 4];
          out += kHex[u & 15];
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

std::string format_double(double value) {
  DSF_CHECK(std::isfinite(value), "JSON has no spelling for infinity or NaN");
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  std::array<char, 64> buf{};
  const auto sci = std::to_chars(buf.data(), buf.data() + buf.size(), value, std::chars_format::scientific);
  std::string text(buf.data(), sci.ptr);
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return text;  // to_chars and Python agree: sign and at least two exponent digits
  const auto fixed = std::to_chars(buf.data(), buf.data() + buf.size(), value, std::chars_format::fixed);
  text.assign(buf.data(), fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

class Dumper {
 public:
  explicit Dumper(Style style) : style_(style) {}
  std::string out;

  void value(const Value& v, int depth) {
    if (v.is_null()) {
      out += "null";
    } else if (v.is_bool()) {
      out += v.as_bool() ? "true" : "false";
    } else if (const auto* big = std::get_if<BigInteger>(&v.raw())) {
      out += big->digits;
    } else if (const auto i = v.to_i64()) {
      out += std::to_string(*i);
    } else if (const auto u = v.to_u64()) {
      out += std::to_string(*u);
    } else if (const auto d = v.to_double()) {
      out += format_double(*d);
    } else if (v.is_string()) {
      out += quote(v.as_string());
    } else if (v.is_array()) {
      array(v.as_array(), depth);
    } else {
      object(v.as_object(), depth);
    }
  }

 private:
  void array(const Array& a, int depth) {
    bool flat = style_ != Style::kPretty;
    if (!flat) {
      flat = a.size() <= 64;
      for (const Value& v : a) flat = flat && !v.is_array() && !v.is_object() && !(v.is_string() && v.as_string().size() > 40);
    }
    out += '[';
    for (size_t i = 0; i < a.size(); ++i) {
      if (i > 0) out += flat && style_ != Style::kCompact ? ", " : ",";
      if (!flat) line(depth + 1);
      value(a[i], depth + 1);
    }
    if (!flat && !a.empty()) line(depth);
    out += ']';
  }
  void object(const Object& o, int depth) {
    const bool pretty = style_ == Style::kPretty;
    out += '{';
    for (size_t i = 0; i < o.size(); ++i) {
      if (i > 0) out += style_ == Style::kPython ? ", " : ",";
      if (pretty) line(depth + 1);
      out += quote(o[i].first);
      out += style_ == Style::kCompact ? ":" : ": ";
      value(o[i].second, depth + 1);
    }
    if (pretty && !o.empty()) line(depth);
    out += '}';
  }
  void line(int depth) {
    out += '\n';
    out.append(static_cast<size_t>(depth) * 2, ' ');
  }

  Style style_;
};

}  // namespace

std::string dump(const Value& value, Style style) {
  Dumper dumper(style);
  dumper.value(value, 0);
  return std::move(dumper.out);
}

}  // namespace dsf::json
