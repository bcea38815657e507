#pragma once
// The checks of dsf-preflight: a flat table of stable ids. A check reads the context, adds findings, and never stops the others.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsf::preflight {

struct Context;

enum class Status { kOk, kNote, kWarning, kFail, kSkipped };

// One problem (or remark) that a check has found.
struct Finding {
  Status status = Status::kFail;
  std::string cls;   // finer class for --json: "missing_tensor", "shape", "dtype", ...
  std::string text;  // "subject: what"
  std::string fix;   // what to do
};

struct Outcome {
  std::string id;
  Status status = Status::kOk;      // the worst of the findings, or kSkipped
  std::string summary;              // one clause: what was looked at and how it stands
  std::vector<Finding> findings;    // the first kMaxFindings; the rest is counted
  size_t more = 0;

  static constexpr size_t kMaxFindings = 20;
  void add(Finding finding);
};

struct Check {
  std::string_view id, title;
  void (*run)(Context&, Outcome&);
};
std::span<const Check> all_checks();  // in the order they run

// In file order of their sources.
void check_config(Context&, Outcome&);
void check_shards(Context&, Outcome&);
void check_tensor_table(Context&, Outcome&);
void check_scales(Context&, Outcome&);
void check_router_attach(Context&, Outcome&);
void check_image_biases(Context&, Outcome&);
void check_special_tokens(Context&, Outcome&);
void check_token_map(Context&, Outcome&);
void check_engram_rows(Context&, Outcome&);
void check_engram_content(Context&, Outcome&);
void check_memory(Context&, Outcome&);
void check_disk(Context&, Outcome&);

}  // namespace dsf::preflight
