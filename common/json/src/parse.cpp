#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "dsf/json/json.h"

namespace dsf::json {
namespace {

std::string line_and_column(std::string_view text, size_t offset) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// Builds Values from nlohmann's events. The first problem is kept in what/offset and stops the parse.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(const ParseOptions& options) : options_(options) {}

  std::string what;
  size_t offset = std::string::npos;
  Value take() { return std::move(root_); }

  bool null() override { return add(Value()); }
  bool boolean(bool b) override { return add(Value(b)); }
  bool number_integer(number_integer_t i) override { return add(Value(i)); }
  bool number_unsigned(number_unsigned_t u) override { return add(Value(u)); }
  bool number_float(number_float_t d, const string_t& raw) override {
    if (raw.find_first_of(".eE") == std::string::npos) return add(Value(BigInteger{raw}));
    return add(Value(static_cast<double>(d)));
  }
  bool string(string_t& s) override { return add(Value(std::move(s))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(Value::object()); }
  bool start_array(size_t) override { return open(Value::array()); }
  bool key(string_t& k) override {
    Level& level = levels_.back();
    level.key = std::move(k);
    const auto [it, fresh] = level.seen.try_emplace(level.key, level.value.as_object().size());
    if (!fresh && options_.reject_duplicate_keys) {
      what = "key \"" + level.key + "\" appears twice in one object";
      return false;
    }
    level.replace = fresh ? std::string::npos : it->second;
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    offset = position > 0 ? position - 1 : 0;
    what = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    if (const size_t colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
    if (const size_t bracket = what.find("] "); what.starts_with("[") && bracket != std::string::npos) what.erase(0, bracket + 2);
    return false;
  }

 private:
  struct Level {
    Value value;
    std::string key;
    size_t replace = std::string::npos;
    std::unordered_map<std::string, size_t> seen;
  };

  bool add(Value v) {
    if (levels_.empty()) {
      root_ = std::move(v);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.as_array().push_back(std::move(v));
    } else if (level.replace != std::string::npos) {
      level.value.as_object()[level.replace].second = std::move(v);
    } else {
      level.value.as_object().emplace_back(level.key, std::move(v));
    }
    return true;
  }
  bool open(Value v) {
    if (levels_.size() >= static_cast<size_t>(options_.max_depth)) {
      what = "nested deeper than " + std::to_string(options_.max_depth) + " levels";
      return false;
    }
    levels_.push_back({std::move(v), {}, std::string::npos, {}});
    return true;
  }
  bool close() {
    Value v = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(v));
  }

  const ParseOptions& options_;
  Value root_;
  std::vector<Level> levels_;
};

}  // namespace

Result<Value> parse(std::string_view text, std::string_view subject, const ParseOptions& options) {
  if (text.starts_with("\xEF\xBB\xBF")) return fail(Code::kContent, std::string(subject), "JSON starts with a byte order mark", {}, "json");
  Builder builder(options);
  try {
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  } catch (const std::exception& e) {
    builder.what = e.what();
  }
  std::string where = builder.offset == std::string::npos ? "" : " at " + line_and_column(text, builder.offset);
  return fail(Code::kContent, std::string(subject), "malformed JSON" + where + ": " + builder.what, {}, "json");
}

Result<std::vector<Value>> parse_lines(std::string_view text, std::string_view subject, const ParseOptions& options) {
  std::vector<Value> out;
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    DSF_TRY(Value value, parse(line, std::string(subject) + ":" + std::to_string(number), options));
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace dsf::json
