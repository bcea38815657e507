// Times the masks of a few formats over a real vocabulary, along replies drawn at random. Run by hand:
//     grammar_bench TOKENIZER_JSON [VOCAB_SIZE]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

#include "dsf/base/numeric.h"
#include "tools/serve/grammar/grammar.h"
#include "tools/serve/grammar/matcher.h"

using namespace dsf;
using namespace dsf::serve::grammar;

namespace {

struct Format {
  const char *name, *schema;
};
constexpr Format kFormats[] = {
    {"json_object", nullptr},
    {"flat object",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"mail":{"type":"string"},"ok":{"type":"boolean"}},"required":["name","age","mail","ok"],"additionalProperties":false})"},
    {"bounded strings", R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":200},"maxItems":20})"},
    {"recursive tree",
     R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"v":{"type":"string"},"c":{"type":"array","items":{"$ref":"#/$defs/t"}}},"required":["v"],"additionalProperties":false}}})"},
};

// CPU time of this thread: what a mask costs, whoever else uses the machine.
int64_t cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

// Strings made of plain tokens, closed now and then: what a model does. Evenly drawn tokens would hardly ever end one.
int32_t pick(const std::vector<int32_t>& allowed, const tokenizer::Tokenizer& tok, std::mt19937_64& rng) {
  for (int i = 0; i < 40; ++i) {
    const int32_t id = allowed[rng() % allowed.size()];
    const std::string_view bytes = tok.bytes(id);
    const bool closes = bytes.find('"') != std::string_view::npos;
    if (closes == (i >= 20) && bytes.find('\\') == std::string_view::npos) return id;
  }
  return allowed[rng() % allowed.size()];
}

void measure(const Format& format, const tokenizer::Tokenizer& tok, const std::shared_ptr<const TokenTrie>& trie) {
  const int64_t t0 = cpu_ns();
  const auto schema = format.schema == nullptr ? json::Value() : *json::parse(format.schema, "schema");
  const auto grammar = format.schema == nullptr ? any_object() : of_schema(schema, "schema");
  const double compile_us = us(cpu_ns() - t0);
  std::vector<double> times;
  std::vector<int32_t> allowed;
  std::mt19937_64 rng(1);
  for (int reply = 0; reply < 10; ++reply) {
    Matcher m(*grammar, trie);
    for (int i = 0; i < 200; ++i) {
      const int64_t begin = cpu_ns();
      m.allowed(allowed);
      const int64_t end = cpu_ns();
      if (allowed.empty()) break;
      times.push_back(us(end - begin));
      if (!m.advance(tok.bytes(pick(allowed, tok, rng)))) return;
    }
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) { return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))]; };
  std::printf("%-16s compile %7.0f us; %zu masks: median %6.0f us, p90 %6.0f us, p99 %6.0f us, max %6.0f us\n",
              format.name, compile_us, times.size(), at(0.5), at(0.9), at(0.99), at(1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: grammar_bench TOKENIZER_JSON [VOCAB_SIZE]\n"), 2;
  const auto tok = tokenizer::Tokenizer::load(argv[1]);
  if (!tok) return std::fprintf(stderr, "%s\n", tok.error().line().c_str()), 2;
  const int64_t vocab = argc > 2 ? parse_i64(argv[2]).value_or(0) : tok->id_limit();
  const int64_t t0 = cpu_ns();
  const auto trie = std::make_shared<const TokenTrie>(TokenTrie::make(*tok, vocab));
  std::printf("trie: %zu entries, %lld ids, made in %.0f ms\n", trie->byte.size(), static_cast<long long>(vocab),
              us(cpu_ns() - t0) / 1e3);
  for (const Format& format : kFormats) measure(format, *tok, trie);
  return 0;
}
