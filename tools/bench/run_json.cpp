#include "tools/bench/run_json.h"

#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <random>
#include <thread>

#include "dsf/base/time.h"
#include "dsf/cli/version.h"
#include "dsf/io/file.h"
#include "tools/bench/run_data.h"

namespace dsf::bench {
namespace {

using json::Value;

Value optional_number(const std::optional<double>& v) { return v ? Value(*v) : Value(); }

Value texts(const std::vector<std::string>& values) {
  json::Array out;
  for (const auto& v : values) out.emplace_back(v);
  return out;
}

Value load_average() {
  std::array<double, 3> load{};
  if (getloadavg(load.data(), 3) != 3) return nullptr;
  return json::Array{load[0], load[1], load[2]};
}

Value first_line(const char* path) {
  const auto text = io::read_text(path, 1 << 20);
  if (!text) return nullptr;
  return text->substr(0, text->find('\n'));
}

Value cpu_model() {
  const auto text = io::read_text("/proc/cpuinfo", 1 << 22);
  if (!text) return nullptr;
  const size_t at = text->find("model name");
  const size_t colon = at == std::string::npos ? at : text->find(": ", at);
  if (colon == std::string::npos) return nullptr;
  return text->substr(colon + 2, text->find('\n', colon) - colon - 2);
}

Value client_json() {
  utsname u{};
  uname(&u);
  Value out = Value::object();
  out.set("hostname", u.nodename);
  out.set("os", u.sysname);
  out.set("kernel", u.release);
  out.set("arch", u.machine);
  out.set("cpu", cpu_model());
  out.set("cores", static_cast<int64_t>(std::thread::hardware_concurrency()));
  out.set("governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  out.set("selftest", "ok");  // the prompt vectors: without them no run starts
  out.set("load_start", load_average());
  return out;
}

Value tool_json() {
  const auto& b = cli::build_info();
  return json::Object{{"version", b.version}, {"commit", b.commit}, {"compiler", b.compiler}, {"arch", b.arch}};
}

Value rules_json(const Gates& g) {
  Value out = Value::object();
  out.set("cache_tolerance", g.cache_tolerance);
  out.set("allow_cached", g.allow_cached);
  out.set("allow_failures", g.allow_failures);
  out.set("slo", json::Object{{"ttft_ms", optional_number(g.slo_ttft_ms)}, {"tpot_ms", optional_number(g.slo_tpot_ms)}, {"e2e_ms", optional_number(g.slo_e2e_ms)}});
  out.set("fail_under", texts(g.fail_under));
  out.set("fail_over", texts(g.fail_over));
  return out;
}

int64_t clock_ns(clockid_t id) {
  timespec ts{};
  clock_gettime(id, &ts);
  return ts.tv_sec * 1'000'000'000 + ts.tv_nsec;
}

// One instant on three clocks: MONOTONIC times everything, REALTIME shows steps of the date, BOOTTIME shows a suspended machine.
Value instant() {
  return json::Object{{"utc", now_rfc3339()}, {"monotonic_ns", monotonic_ns()}, {"realtime_ns", clock_ns(CLOCK_REALTIME)}, {"boottime_ns", clock_ns(CLOCK_BOOTTIME)}};
}

// How far the other clocks moved against MONOTONIC between two instants.
Value clock_drift(const Value& start, const Value& end) {
  const auto at = [](const Value& instant, const char* key) { return instant.find(key) == nullptr ? 0 : instant.find(key)->to_i64().value_or(0); };
  const auto moved = [&](const char* key) { return at(end, key) - at(start, key); };
  return json::Object{{"realtime_drift_ns", moved("realtime_ns") - moved("monotonic_ns")}, {"suspended_ns", moved("boottime_ns") - moved("monotonic_ns")}};
}

Value rate_json(const Plan& plan) {
  return json::Object{{"kind", plan.rate.kind}, {"rate", plan.rate.rate}, {"ramp_to", plan.rate.ramp_to}, {"burstiness", plan.rate.burstiness},
                      {"requests", static_cast<int64_t>(plan.rate.items.size())}, {"settings", settings_json(plan.settings, "rate", plan.settings.thinkings.front())}};
}

}  // namespace

std::string new_run_id() {
  std::random_device random;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%012llx-%08x", static_cast<unsigned long long>(unix_time_ms()), random());
  return text.data();
}

json::Value passes_json(const Plan& plan) {
  json::Array passes;
  if (!plan.rate.kind.empty() || plan.turns > 0) return passes;
  for (const auto& thinking : plan.settings.thinkings) {
    for (const auto& phase : plan.settings.phases) passes.push_back(settings_json(plan.settings, phase, thinking));
  }
  return passes;
}

json::Value run_json(const Plan& plan, const Probe& probe, const std::string& run_id) {
  Value out = Value::object();
  out.set("schema", kRunSchema);
  out.set("v", 1);
  out.set("created_by", cli::tool_id("dsf-bench"));
  json::Array inputs;
  if (!plan.rate.trace_path.empty()) inputs.push_back(json::Object{{"path", plan.rate.trace_path}, {"sha256", plan.rate.trace_sha256}});
  out.set("inputs", std::move(inputs));
  out.set("run_id", run_id);
  out.set("state", "running");
  out.set("label", plan.target.label);
  out.set("model", plan.target.model);
  out.set("tool", tool_json());
  out.set("argv", texts(plan.argv));
  out.set("passes", passes_json(plan));
  if (!plan.rate.kind.empty()) out.set("rate", rate_json(plan));
  if (plan.turns > 0) {
    out.set("session", json::Object{{"turns", plan.turns}, {"c", plan.settings.levels.back()}, {"settings", settings_json(plan.settings, "session", plan.settings.thinkings.front())}});
  }
  out.set("rules", rules_json(plan.gates));
  out.set("started", instant());
  out.set("ended", nullptr);
  out.set("client", client_json());
  out.set("server", probe.server);
  out.set("probe", probe.facts);
  out.set("meta", plan.meta);
  return out;
}

void note_resumed(Value& run, const Plan& plan) {
  if (run.find("resumed") == nullptr) run.set("resumed", Value::array());
  Value here = instant();
  here.set("argv", texts(plan.argv));
  run.find("resumed")->push(std::move(here));
  run.set("state", "running");
}

void finish_run_json(Value& run, const std::string& state) {
  run.set("state", state);
  const Value* resumed = run.find("resumed");
  const Value start = resumed == nullptr ? *run.find("started") : resumed->as_array().back();
  run.set("ended", instant());
  run.set("clock", clock_drift(start, *run.find("ended")));
  run.find("client")->set("load_end", load_average());
}

}  // namespace dsf::bench
