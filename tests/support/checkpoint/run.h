#pragma once
// What dsf-make-checkpoint does with its plan: writes, then damages; one line a folder or damage through `say`.
#include <functional>
#include <string>

#include "tests/support/checkpoint/options.h"

namespace dsf::make_checkpoint {

Result<void> run(const Plan& plan, const std::function<void(const std::string&)>& say);

}  // namespace dsf::make_checkpoint
