#pragma once
// Finds out, before anything is measured, which optional members the server really honours, whether the model is there, and what the
// server says about its weights (bench.md 4.7). A member counts as accepted only when the answer holds what it asks for.
#include <map>
#include <string>
#include <vector>

#include "tools/bench/control.h"
#include "tools/bench/network.h"
#include "tools/bench/plan.h"
#include "tools/bench/record.h"

namespace dsf::bench {

struct Probe {
  Features features;
  json::Value server;                       // for run.json: models, version, identity
  json::Value facts;                        // for run.json: what was tried and seen
  std::string metrics_url;                  // empty: none
  std::vector<Request> requests;            // the probe's own, for the raw file
};

// Errors: kRemote unreachable, kRefused "model_unknown" or "unauthorized", kRefused when no form of the request is accepted.
Result<Probe> probe_server(const Plan& plan, Control& control, Network& network);
// The id of the first model that the server lists. Errors: kRemote unreachable, kRefused without one.
Result<std::string> first_model(Control& control, const std::string& base_url);

}  // namespace dsf::bench
