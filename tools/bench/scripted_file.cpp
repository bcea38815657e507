// Scripts written by hand, as JSON.
#include "tools/bench/scripted.h"

namespace dsf::bench {
namespace {

using json::Cursor;

Result<Chunk> chunk_from(const Cursor& at) {
  Chunk out;
  DSF_TRY(out.at_ms, at.number_at("at_ms"));
  if (!(out.at_ms >= 0 && out.at_ms <= 1e8)) return at.fail("at_ms is out of range");
  DSF_TRY(out.byte_by_byte, at.boolean_or("byte_by_byte", false));
  const auto bytes = at.maybe("bytes"), payload = at.maybe("json"), end = at.maybe("end");
  if ((bytes ? 1 : 0) + (payload ? 1 : 0) + (end ? 1 : 0) != 1) return at.fail("a chunk has one of bytes, json, end");
  if (bytes) {
    DSF_TRY(out.bytes, bytes->string());
  } else if (payload) {
    out.bytes = "data: " + json::dump(payload->value()) + "\n\n";
  } else {
    DSF_TRY(const std::string how, end->string());
    if (how != "reset" && how != "close") return end->fail("'" + how + "' is no end", "use reset or close");
    out.what = how == "reset" ? Chunk::What::kReset : Chunk::What::kClose;
  }
  return out;
}

Result<Script> script_from(const Cursor& at) {
  Script out;
  DSF_TRY(const std::vector<Cursor> chunks, at.elements());
  for (const auto& c : chunks) {
    DSF_TRY(Chunk chunk, chunk_from(c));
    if (!out.chunks.empty() && chunk.at_ms < out.chunks.back().at_ms) return c.fail("a chunk stands before an earlier one");
    out.chunks.push_back(std::move(chunk));
  }
  return out;
}

}  // namespace

Result<std::vector<Script>> scripts_from_json(const json::Value& value, std::string_view subject) {
  const Cursor root(value, std::string(subject), Code::kUsage);
  DSF_TRY(const std::vector<Cursor> elements, root.elements());
  std::vector<Script> out;
  if (!elements.empty() && elements.front().value().is_object()) {
    DSF_TRY(Script script, script_from(root));
    out.push_back(std::move(script));
    return out;
  }
  for (const auto& e : elements) {
    DSF_TRY(Script script, script_from(e));
    out.push_back(std::move(script));
  }
  if (out.empty()) return root.fail("a list of scripts expected");
  return out;
}

}  // namespace dsf::bench
