#pragma once
// run.json: what was asked, of whom, by what, from where (bench.md 3.6). Unknown facts are null, never guessed.
#include "tools/bench/plan.h"
#include "tools/bench/probe.h"

namespace dsf::bench {
std::string new_run_id();  // time and random bits, hexadecimal
// Settings of each pass in the order in which they run; empty for what is not the matrix.
json::Value passes_json(const Plan& plan);
json::Value run_json(const Plan& plan, const Probe& probe, const std::string& run_id);
// A later process goes on with this run.
void note_resumed(json::Value& run, const Plan& plan);
// Adds the end: state, time, load, and what the clocks did meanwhile.
void finish_run_json(json::Value& run, const std::string& state);
}  // namespace dsf::bench
