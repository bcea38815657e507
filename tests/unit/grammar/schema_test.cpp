#include "valid.h"
#include "walk.h"

using namespace dsf;
using namespace dsf::test;

namespace {

struct Case {
  const char* schema;
  std::vector<const char*> in, out;
};

const Case kCases[] = {
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false})",
     {R"({"a":1})", R"({"a": -12, "b": "x\n"})", "{\n  \"a\": 0\n}", R"({"a":1,"b":"\ud83d\ude00é"})"},
     {"{}", R"({"b":"x"})", R"({"a":1.5})", R"({"a":01})", R"({"b":"x","a":1})", R"({"a":1,"c":2})", R"({"a":1,})",
      R"({ "a":1  })", R"({"a":"1"})", R"( {"a":1})", R"({"a":1} )", R"({"a":1,"b":"\ud83d"})", R"({"a":-0})",
      "{\"a\":1,\"b\":\"\n\"}", "{\"a\":1,\"b\":\"\xff\"}", "{\"a\":1,\"b\":\"\xc0\x80\"}"}},
    {R"({"type":"object","properties":{"a":{}},"required":["z"],"additionalProperties":{"type":"boolean"}})",
     {R"({"a":[1],"z":true})", R"({"z":false,"q":true})", R"({"z":true,"aa":false,"":true})"},
     {R"({"a":1})", R"({"z":1})", R"({"z":true,"a":false})", R"({"z":true,"\u0061":false})",
      R"({"z":true,"z":false})"}},
    {R"({"type":"object"})", {"{}", R"({"x":{"y":[null,1e5,-0.5]}})", R"({ "x": [ ] })"}, {"[]", "{", R"({"x"})"}},
    {R"({"enum":["red","green","red\"",3,null,{"k":[1]}]})",
     {R"("red")", R"("red\"")", "3", "null", R"({"k":[1]})"},
     {R"("re")", R"("redd")", "33", R"({"k": [1]})"}},
    {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
    {R"({"const":"x"})", {R"("x")"}, {R"("y")"}},
    {R"({"type":["integer","null"]})", {"5", "null"}, {"true", "5.0"}},
    {R"({"anyOf":[{"type":"string","maxLength":2},{"$ref":"#/$defs/n"}],"$defs":{"n":{"type":"number"}}})",
     {R"("")", R"("éé")", R"("\u00e9x")", R"("😀\ud83d\ude00")", "1.25", "-1E+10"},
     {R"("abc")", "1.", ".5", "1e", "+1"}},
    {R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("abc")"}, {R"("a")", R"("abcd")", R"("")"}},
    {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":3})",
     {"[true]", "[true, false]", "[\n true,\n false,\n true\n]"},
     {"[]", "[true,false,true,false]", "[true,]", "[1]"}},
    {R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1})",
     {"[1]", R"([1,"x"])", R"([1,"x",null,null])"},
     {"[]", R"(["x"])", R"([1,2])", R"([1,"x",1])"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"}],"items":false})", {"[]", "[1]"}, {"[1,1]"}},
    {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"l":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}}})",
     {R"({"v":1})", R"({"v":1,"l":[]})", R"({"v":1,"l":[{"v":2,"l":[{"v":3}]},{"v":4}]})"},
     {R"({"v":1,"l":[{}]})", R"({"v":1,"l":[{"v":2}})"}},
    {R"({"properties":{"a/b":{"$ref":"#/definitions/x~1y"}},"definitions":{"x/y":{"type":"null"}},"required":["a/b"]})",
     {R"({"a/b":null})"},
     {R"({"a/b":1})"}},
    {R"({"allOf":[{"type":"integer"}],"description":"one"})", {"7"}, {"null"}},
    {R"({"type":"string","pattern":"^[A-Z]{2}-\\d+$"})",
     {R"("AB-1")", R"("XY-123")"},
     {R"("AB-")", R"("ab-1")", R"("AB-1x")"}},
    {R"({"type":"string","pattern":"\"|\\\\"})", {R"("x\"y")", R"("\\")"}, {R"("xy")"}},
    {R"({"type":"string","format":"date"})",
     {R"("2026-11-30")", R"("2024-02-28")"},
     {R"("2026-02-30")", R"("2026-13-01")", R"("2026-1-1")", R"("2026-11-31")"}},
    {R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123")"}},
    {"true", {"1", "{}", R"("x")"}, {"", "nul"}},
};

}  // namespace

TEST_CASE("a schema's language holds valid texts and no others") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.schema));
    const auto grammar = compiled(c.schema);
    for (const char* text : c.in) CHECK_MESSAGE(is_text(grammar, text), text);
    for (const char* text : c.out) CHECK_FALSE_MESSAGE(is_text(grammar, text), text);
  }
}

TEST_CASE("random replies of every schema are valid under it, by a validator that knows nothing of grammars") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.schema));
    const json::Value schema = parse_json(c.schema);
    const auto grammar = compiled(c.schema);
    int whole = 0;
    for (uint64_t seed = 0; seed < 25; ++seed) {
      const std::string text = random_text(grammar, seed);
      if (text.empty()) continue;
      ++whole;
      json::ParseOptions options;
      options.reject_duplicate_keys = false;
      options.max_depth = 1000;
      const auto value = json::parse(text, "reply", options);
      REQUIRE_MESSAGE(value.has_value(), text);
      CHECK_MESSAGE(valid(*value, schema, schema), text);
    }
    CHECK(whole > 0);
  }
}

TEST_CASE("what a grammar cannot promise is refused with the keyword and the place") {
  const struct {
    const char *schema, *path, *what;
  } cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})", "schema.properties.a",
       "uniqueItems"},
      {R"({"not":{}})", "schema", "not"},
      {R"({"type":"integer","multipleOf":2})", "schema", "multipleOf"},
      {R"({"items":{"if":{}}})", "schema.items", "if"},
      {R"({"patternProperties":{}})", "schema", "patternProperties"},
      {R"({"allOf":[{},{}]})", "schema", "allOf"},
      {R"({"anyOf":[{"type":"string"}],"minLength":3})", "schema", "minLength beside anyOf"},
      {R"({"$ref":"#/$defs/none"})", "schema", "names nothing"},
      {R"({"$ref":"http://x/y"})", "schema", "another document"},
      {R"({"type":"text"})", "schema", "type must be"},
      {R"({"type":"string","format":"uri"})", "schema", "format uri is not supported"},
      {R"x({"type":"string","pattern":"(?=a)"})x", "schema.pattern", "lookaround"},
      {R"({"type":"string","pattern":"a","maxLength":3})", "schema", "pattern with a length"},
      {R"({"type":"string","minLength":-1})", "schema", "minLength must be"},
      {R"({"type":"array","minItems":3,"maxItems":2})", "schema", "maxItems is below minItems"},
      {R"({"type":"object","required":["a"],"additionalProperties":false})", "schema", "required names a"},
      {R"({"$ref":"#"})", "schema", "no text can fit"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "schema", "refers to itself"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "schema", "no text can fit"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "schema", "no text can fit"},
      {R"({"enum":[]})", "schema", "no text can fit"},
      {R"({"properties":{"a":7}})", "schema.properties.a", "must be an object or a boolean"},
  };
  for (const auto& c : cases) {
    CAPTURE(std::string(c.schema));
    const auto out = serve::grammar::of_schema(parse_json(c.schema), "schema");
    REQUIRE_FALSE(out.has_value());
    CHECK(out.error().code == Code::kUsage);
    CHECK(out.error().subject == c.path);
    CHECK_MESSAGE(out.error().what.find(c.what) != std::string::npos, out.error().what);
  }
}

TEST_CASE("a schema of any size is compiled or refused, in bounded memory") {
  json::Value values = json::Value::array();
  for (int i = 0; i < 3000; ++i) values.push("value number " + std::to_string(i));
  CHECK(is_text(*serve::grammar::of_schema(json::Object{{"enum", values}}, "schema"), "\"value number 2999\""));
  for (int i = 0; i < 3000; ++i) values.push(std::to_string(i) + std::string(300, 'x'));
  const auto large = serve::grammar::of_schema(json::Object{{"enum", values}}, "schema");
  REQUIRE_FALSE(large.has_value());
  CHECK(large.error().what.find("too large") != std::string::npos);
}
