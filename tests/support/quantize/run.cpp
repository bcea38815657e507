#include "tests/support/quantize/run.h"

#include <algorithm>
#include <cmath>

#include "dsf/cli/log.h"
#include "dsf/exl3_pack/pack_writer.h"
#include "dsf/io/file.h"
#include "dsf/model/tensor_table.h"
#include "tests/support/quantize/calibrate.h"
#include "tests/support/quantize/collector.h"
#include "tools/serve/engine/weight_reader.h"
#include "tools/serve/score/score.h"

namespace dsf::quantize {
namespace {

namespace fs = std::filesystem;
using exl3_pack::PackWriter;
using model::Weight;
using safetensors::Checkpoint;

// Beside config.json and the shards; those that the native folder has.
constexpr const char* kCopied[] = {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                   "engram_token_map.json"};
constexpr uint64_t kMaxTextBytes = uint64_t{256} << 20;

Result<void> check_output(const fs::path& dir) {
  std::error_code error;
  if (!fs::exists(dir, error)) return {};
  if (!fs::is_directory(dir, error) || !fs::is_empty(dir, error))
    return fail(Code::kUsage, dir.string(), "exists", "name a folder that does not, or remove it");
  return {};
}

Result<Collector> calibrate(const Plan& plan) {
  DSF_TRY(const std::string text, io::read_text(plan.calibration, kMaxTextBytes));
  DSF_TRY(const std::vector<int32_t> ids, serve::parse_token_ids(text, plan.calibration));
  serve::CpuEngineOptions options;
  options.model_dir = plan.native;
  options.engram_dir = plan.engram;
  options.max_sessions = 1;
  options.threads = plan.threads;
  DSF_TRY(const std::unique_ptr<serve::CpuEngine> engine, serve::CpuEngine::open(std::move(options)));
  Collector collector(engine->weights());
  engine->observe(&collector);
  DSF_OK(run_text(*engine, ids));
  cli::log(cli::Level::kInfo, "calibrated", {{"tokens", std::to_string(ids.size())}});
  return collector;
}

PackedReport report_of(const std::string& name, const exl3::PackedMatrix& m, std::span<const float> weight) {
  return {.name = name, .bits = m.bits, .out = m.out, .in = m.in, .error = exl3::relative_error(m, weight)};
}

Result<void> add_weight(PackWriter& writer, const model::Config& c, const Checkpoint& native, const Weight& w) {
  if (w.kind == model::WeightKind::kTableFp8) return {};
  if (w.packed_in_exl3) {
    DSF_TRY(const serve::Linear l, serve::WeightReader(native).linear(w.name, w.shape[0], w.shape[1]));
    return writer.add_linear(PackWriter::kNextShard, c, w, l.w);
  }
  const std::string stored = w.kind == model::WeightKind::kPlain ? w.name : w.name + ".weight";
  if (stored.ends_with("gate.bias_vl") && !native.contains(stored)) return {};  // text-only checkpoints
  DSF_TRY(const safetensors::TensorView view, native.tensor(stored));
  return writer.add_plain(PackWriter::kNextShard, w.name,
                          {stored, view.dtype(), view.shape(), {view.bytes.begin(), view.bytes.end()}});
}

Result<void> copy_small_files(const fs::path& from, const fs::path& to) {
  for (const char* name : kCopied) {
    std::error_code error;
    if (!fs::exists(from / name, error)) continue;
    DSF_TRY(const std::string text, io::read_text(from / name, kMaxTextBytes));
    DSF_OK(io::write_file_atomic(to / name, text));
  }
  return {};
}

void sum_up(Report& r) {
  double weights = 0, bits = 0, squares = 0, output_squares = 0;
  bool calibrated = true;
  for (const PackedReport& m : r.matrices) {
    const auto n = static_cast<double>(m.out * m.in);
    weights += n;
    bits += n * m.bits;
    squares += m.error * m.error;
    calibrated = calibrated && m.output_error;
    if (m.output_error) output_squares += *m.output_error * *m.output_error;
  }
  const auto count = static_cast<double>(std::max<size_t>(1, r.matrices.size()));
  r.mean_bits = bits / std::max(1.0, weights);
  r.rms_error = std::sqrt(squares / count);
  if (calibrated) r.rms_output_error = std::sqrt(output_squares / count);
}

Result<Report> write_pack(const Plan& plan, const fs::path& dir, const std::optional<Collector>& collector) {
  const fs::path config_path = fs::path(plan.native) / "config.json";
  DSF_TRY(const model::Config c, model::load_config(config_path));
  DSF_TRY(const Checkpoint native, Checkpoint::open(plan.native));
  DSF_OK(model::require_loadable(c, native));
  Report report;
  std::optional<exl3::Hessian> moments;  // of the matrix at hand
  DSF_TRY(exl3_pack::FolderWriter folder, exl3_pack::FolderWriter::create(dir, plan.max_shard_bytes));
  PackWriter writer(
      std::move(folder),
      [&](const std::string& name) {
        if (collector) moments = collector->moments(name);
        return exl3::QuantizeOptions{.bits = plan.widths.bits(name),
                                     .seed = exl3_pack::stream_seed(name, plan.seed),
                                     .threads = plan.threads,
                                     .hessian = moments && plan.ldlq ? &*moments : nullptr};
      },
      [&](const std::string& name, const exl3::PackedMatrix& m, std::span<const float> weight) {
        PackedReport r = report_of(name, m, weight);
        if (moments) r.output_error = exl3::relative_output_error(m, weight, *moments);
        if (collector) r.n_rows = collector->n_rows(name);
        report.matrices.push_back(std::move(r));
      });
  for (const Weight& w : model::all_weights(c)) DSF_OK(add_weight(writer, c, native, w));
  DSF_OK(copy_small_files(plan.native, dir));
  DSF_TRY(const std::string config_text, io::read_text(config_path));
  DSF_TRY(json::Value config, json::parse(config_text, config_path.string()));
  DSF_OK(writer.finish(std::move(config)));
  sum_up(report);
  return report;
}

}  // namespace

Result<Report> run(const Plan& plan) {
  DSF_OK(check_output(plan.output));
  const fs::path part = plan.output + ".part";
  std::error_code error;
  fs::remove_all(part, error);
  std::optional<Collector> collector;
  if (!plan.calibration.empty()) {
    DSF_TRY(collector, calibrate(plan));
  }
  DSF_TRY(Report report, write_pack(plan, part, collector));
  DSF_OK(io::rename_file(part, plan.output));
  return report;
}

}  // namespace dsf::quantize
