#include "tools/fetch/tensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "dsf/base/numeric.h"
#include "dsf/base/time.h"
#include "dsf/cli/log.h"
#include "dsf/cli/version.h"
#include "dsf/codec/sha256.h"
#include "dsf/io/file.h"
#include "dsf/manifest/record.h"
#include "tools/fetch/target.h"
#include "tools/fetch/tensor_output.h"

namespace dsf::fetch {
namespace {

constexpr std::string_view kSchema = "hub-tensors";

// What was found out about one tensor once its bytes are in the part file.
struct TensorCheck {
  std::string sha256;
  std::string verified;  // "pinned" or "transport"
};

uint64_t total_bytes(const OutputPlan& outputs) {
  uint64_t n = 0;
  for (const PlacedTensor& t : outputs.tensors) n += t.tensor->end - t.tensor->begin;
  return n;
}

// Digest of a tensor as it lies in the part file, and whether its bytes are plausible at all.
Result<TensorCheck> check_tensor(const PlacedTensor& t, const io::Fd& part, bool allow_constant) {
  const uint64_t size = t.tensor->end - t.tensor->begin;
  const std::string subject = manifest::printable(t.tensor->info.name);
  codec::Sha256 hash;
  std::vector<std::byte> buffer(kMiB);
  bool constant = true;
  std::byte first{};
  for (uint64_t done = 0; done < size;) {
    const std::span<std::byte> block(buffer.data(), static_cast<size_t>(std::min<uint64_t>(kMiB, size - done)));
    DSF_OK(io::read_at(part, t.at + done, block));
    if (done == 0) first = block.front();
    constant = constant && std::all_of(block.begin(), block.end(), [&](std::byte b) { return b == first; });
    hash.update(block);
    done += block.size();
  }
  TensorCheck c{hash.finish().hex(), "transport"};
  if (constant && size > 4096 && !allow_constant) {
    return fail(Code::kContent, subject, "every byte is equal, which no trained tensor is",
                "look at the source file, or give --allow-constant", "constant");
  }
  if (t.tensor->pinned_sha256.empty() || !t.tensor->rows.empty()) return c;
  if (t.tensor->pinned_sha256 != c.sha256) {
    return fail(Code::kContent, subject, "sha256 differs (want " + t.tensor->pinned_sha256 + ", got " + c.sha256 + ")",
                "run the command again; if it stays, check the pin", "digest_mismatch");
  }
  c.verified = "pinned";
  return c;
}

json::Value item_of(const PlacedTensor& t, const TensorCheck& c, const OutputPlan& outputs) {
  const Shard& s = *t.tensor->shard;
  json::Value v = json::Value::object();
  v.set("name", t.tensor->info.name);
  v.set("dtype", tensor::dtype_name(t.tensor->info.dtype));
  v.set("shape", json::Array(t.tensor->info.shape.begin(), t.tensor->info.shape.end()));
  if (!t.tensor->rows.empty()) v.set("rows", t.tensor->rows);
  v.set("sha256", c.sha256);
  v.set("verified", c.verified);
  v.set("repo", s.source.repo());
  v.set("revision", s.source.commit());
  v.set("source_file", s.entry.path);
  v.set("source_sha256", s.entry.sha256);
  v.set("source_header_sha256", s.header_sha256);
  v.set("header_verified", s.header_pinned ? "pinned" : "transport");
  v.set("source_bytes", json::Array{t.tensor->begin, t.tensor->end});
  v.set("file", outputs.files[t.output].path.filename().string());
  v.set("offset", t.at);
  v.set("host", s.source.host());
  return v;
}

Result<void> write_record(const TensorPlan& plan, const OutputPlan& outputs, const std::vector<TensorCheck>& checked,
                          const std::string& started, const hub::Settings& settings) {
  manifest::Record record;
  record.schema = kSchema;
  record.created_by = cli::tool_id("dsf-fetch");
  for (const Planned& p : plan.plans) {
    if (!p.plan.pin_path.empty()) record.inputs.push_back({p.plan.pin_path, p.plan.pin_sha256});
  }
  for (size_t i = 0; i < outputs.tensors.size(); ++i)
    record.items.push_back(item_of(outputs.tensors[i], checked[i], outputs));
  json::Value files = json::Value::array();
  for (const OutputFile& f : outputs.files) {
    json::Value v = json::Value::object();
    v.set("path", f.path.filename().string());
    v.set("size", f.size);
    DSF_TRY(const codec::Digest digest, codec::sha256_file(f.path));
    v.set("sha256", digest.hex());
    files.push(std::move(v));
  }
  record.more = {{"identity", outputs.identity}, {"endpoint", settings.endpoint},
                 {"files", std::move(files)},    {"started", started},
                 {"finished", now_rfc3339()},    {"tls_verified", settings.http.verify_tls}};
  return io::write_file_atomic(outputs.record, manifest::write(record));
}

// The record is of these very outputs, and their bytes are still what it says.
bool nothing_to_do(const OutputPlan& outputs) {
  const auto record = manifest::load_record(outputs.record, kSchema);
  if (!record) return false;
  const json::Value value = manifest::to_json(*record);
  const json::Value* identity = value.find("identity");
  const json::Value* files = value.find("files");
  if (identity == nullptr || !(*identity == json::Value(outputs.identity)) || files == nullptr || !files->is_array() ||
      files->as_array().size() != outputs.files.size())
    return false;
  for (size_t i = 0; i < outputs.files.size(); ++i) {
    const json::Value* sha256 = files->as_array()[i].find("sha256");
    const auto digest = codec::sha256_file(outputs.files[i].path);
    if (!digest || sha256 == nullptr || !(*sha256 == json::Value(digest->hex()))) return false;
  }
  return true;
}

Result<void> refuse_conflicts(const OutputPlan& outputs, bool overwrite) {
  std::error_code ignored;
  for (const OutputFile& f : outputs.files) {
    if (!overwrite && std::filesystem::exists(f.path, ignored)) {
      return fail(Code::kLocal, f.path.string(), "exists and is not what this command would write",
                  "give another name, or --overwrite", "conflict");
    }
  }
  return {};
}

void print_plan(const OutputPlan& outputs, const std::vector<Request>& requests, Events& events) {
  uint64_t transfer = 0;
  for (const Request& r : requests) transfer += r.end - r.begin;
  for (const PlacedTensor& t : outputs.tensors) {
    const PickedTensor& p = *t.tensor;
    events.emit("planned", {{"name", p.info.name}, {"bytes", p.end - p.begin}, {"source", p.shard->entry.path}});
    if (events.enabled()) continue;
    std::printf("%15llu  %-8s %-18s %s  (%s)\n", static_cast<unsigned long long>(p.end - p.begin),
                std::string(tensor::dtype_name(p.info.dtype)).c_str(), tensor::shape_text(p.info.shape).c_str(),
                manifest::printable(p.info.name).c_str(), manifest::printable(p.shard->entry.path).c_str());
  }
  if (events.enabled()) return;
  std::printf("%zu tensors, %s in %zu requests of %s\n", outputs.tensors.size(),
              format_bytes(total_bytes(outputs)).c_str(), requests.size(), format_bytes(transfer).c_str());
}

void say_done(const OutputPlan& outputs, const RangeOutcome& done, Events& events, const TensorsOptions& o) {
  events.emit("summary", {{"result", "ok"},
                          {"tensors", outputs.tensors.size()},
                          {"bytes", total_bytes(outputs)},
                          {"downloaded_bytes", done.network_bytes},
                          {"resumed_bytes", done.resumed_bytes}});
  if (!events.enabled() && !o.quiet)
    std::printf("%s\n", (o.out.empty() ? outputs.record.parent_path() : o.out).string().c_str());
}

Result<RangeOutcome> bring(const OutputPlan& outputs, const std::vector<Request>& requests, const TensorsOptions& o,
                           const std::shared_ptr<hub::Shared>& shared, std::vector<TensorCheck>& checked) {
  std::vector<io::Fd> parts;
  for (const OutputFile& f : outputs.files) {
    DSF_OK(io::make_dirs(f.path.has_parent_path() ? f.path.parent_path() : "."));
    DSF_TRY(io::Fd part, open_part_file(f.part(), f.size, o.sparse_dir.empty()));
    DSF_OK(io::write_at(part, 0, as_bytes(f.prefix)));
    parts.push_back(std::move(part));
  }
  cli::Progress progress("fetch tensors", total_bytes(outputs), !o.quiet);
  DSF_TRY(const RangeOutcome done,
          fetch_ranges(requests, parts, outputs.journal, "{\"identity\":\"" + outputs.identity + "\"}", shared,
                       o.connections, [&](uint64_t bytes) { progress.update(bytes); }));
  for (const PlacedTensor& t : outputs.tensors) {
    auto c = check_tensor(t, parts[t.output], o.allow_constant);
    if (!c) {
      (void)io::remove_file(outputs.journal);  // its pieces are as received: fetch them again next time
      return fail(c.error());
    }
    checked.push_back(std::move(*c));
  }
  for (io::Fd& part : parts) {
    DSF_OK(io::sync(part));
    if (::fchmod(part.get(), default_mode()) != 0) return fail(io::errno_error(part.path(), "cannot set the mode"));
    io::drop_page_cache(part, 0, 0);
    DSF_OK(part.close());
  }
  return done;
}

}  // namespace

Result<int> run_tensors(const TensorsOptions& o, const std::shared_ptr<hub::Shared>& shared, Events& events) {
  const std::string started = now_rfc3339();
  DSF_TRY(const TensorPlan plan, plan_tensors(o, o.selection, shared, o.connections));
  DSF_TRY(const OutputPlan outputs, plan_outputs(plan, o));
  const std::vector<Request> requests = plan_requests(segments_of(plan, outputs));
  if (o.dry_run) {
    print_plan(outputs, requests, events);
    return 0;
  }
  if (nothing_to_do(outputs)) {
    if (!o.quiet) cli::log(cli::Level::kInfo, "nothing to do", {{"tensors", std::to_string(outputs.tensors.size())}});
    say_done(outputs, {}, events, o);
    return 0;
  }
  DSF_OK(refuse_conflicts(outputs, o.overwrite));
  DSF_OK(io::make_dirs(outputs.journal.has_parent_path() ? outputs.journal.parent_path() : "."));
  DSF_TRY(const io::FileLock lock, io::FileLock::acquire(outputs.journal));
  std::vector<TensorCheck> checked;
  DSF_TRY(const RangeOutcome done, bring(outputs, requests, o, shared, checked));
  for (const OutputFile& f : outputs.files) DSF_OK(io::rename_file(f.part(), f.path));
  DSF_OK(io::sync_dir(outputs.record.has_parent_path() ? outputs.record.parent_path() : "."));
  DSF_OK(write_record(plan, outputs, checked, started, shared->settings));
  DSF_OK(io::remove_file(outputs.journal));
  say_done(outputs, done, events, o);
  return 0;
}

}  // namespace dsf::fetch
