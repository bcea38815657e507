#pragma once
// run.json: what was asked, of whom, by what, from where (bench.md 3.6). Unknown facts are null, never guessed.
#include "tools/bench/plan.h"
#include "tools/bench/probe.h"

namespace dsf::bench {
std::string new_run_id();  // time and random bits, hexadecimal
// passes: settings of each pass in the order in which they run.
json::Value run_json(const Plan& plan, const Probe& probe, const std::string& run_id);
// Adds the end: state, time, load.
void finish_run_json(json::Value& run, const std::string& state);
}  // namespace dsf::bench
