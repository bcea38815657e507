#include "tests/support/checkpoint/run.h"

namespace dsf::make_checkpoint {
namespace {

Result<void> report(const std::string& dir, const char* what, const std::function<void(const std::string&)>& say) {
  DSF_TRY(const std::string digest, made_checkpoint::digest(dir));
  say(std::string(what) + " " + dir + " sha256 " + digest);
  return {};
}

}  // namespace

Result<void> run(const Plan& plan, const std::function<void(const std::string&)>& say) {
  if (!plan.keep && !plan.native.empty()) {
    DSF_OK(made_checkpoint::write_native(plan.native, plan.options));
    DSF_OK(report(plan.native, "native", say));
  }
  if (!plan.keep && !plan.exl3.empty()) {
    DSF_OK(made_checkpoint::write_exl3(plan.exl3, plan.options));
    DSF_OK(report(plan.exl3, "exl3", say));
  }
  if (!plan.dequantised.empty()) {
    DSF_OK(made_checkpoint::write_dequantised(plan.exl3, plan.dequantised));
    DSF_OK(report(plan.dequantised, "dequantised", say));
  }
  for (const std::string& dir : {plan.native, plan.exl3}) {
    for (const made_checkpoint::Breakage& b : plan.breakages) {
      if (dir.empty()) continue;
      DSF_TRY(const std::string done, made_checkpoint::damage(dir, b));
      say(done);
    }
  }
  return {};
}

}  // namespace dsf::make_checkpoint
