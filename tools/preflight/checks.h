#pragma once
// The checks of dsf-preflight: a flat table of stable ids. A check reads the context, adds findings, and never stops
// the others.
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
  Status status = Status::kOk;    // the worst of the findings, or kSkipped
  std::string summary;            // one clause: what was looked at and how it stands
  std::vector<Finding> findings;  // the first kMaxFindings; the rest is counted
  size_t more = 0;

  static constexpr size_t kMaxFindings = 20;
  void add(Finding finding);
};

struct Check {
  std::string_view id, title;
  void (*run)(Context&, Outcome&);
};
std::span<const Check> all_checks();  // in the order they run

// In the order of the table.
void check_config(Context&, Outcome&);
void check_shards(Context&, Outcome&);
void check_proven(Context&, Outcome&);
void check_tensor_table(Context&, Outcome&);
void check_scales(Context&, Outcome&);
void check_router_attach(Context&, Outcome&);
void check_image_biases(Context&, Outcome&);
void check_special_tokens(Context&, Outcome&);
void check_token_map(Context&, Outcome&);
void check_engram_rows(Context&, Outcome&);
void check_engram_content(Context&, Outcome&);
void check_memory(Context&, Outcome&);
void check_free_memory(Context&, Outcome&);
void check_disk(Context&, Outcome&);
void check_busy_files(Context&, Outcome&);
void check_http_port(Context&, Outcome&);
void check_rendezvous_port(Context&, Outcome&);
void check_gpu_present(Context&, Outcome&);
void check_gpu_idle(Context&, Outcome&);
void check_node_file(Context&, Outcome&);
void check_node_address(Context&, Outcome&);
void check_link_state(Context&, Outcome&);
void check_link_speed(Context&, Outcome&);
void check_link_mtu(Context&, Outcome&);
void check_link_gid(Context&, Outcome&);
void check_link_errors(Context&, Outcome&);
void check_kernel(Context&, Outcome&);
void check_swap(Context&, Outcome&);
void check_huge_pages(Context&, Outcome&);
void check_memlock(Context&, Outcome&);
void check_killers(Context&, Outcome&);
void check_others(Context&, Outcome&);
void check_self(Context&, Outcome&);
void check_serving(Context&, Outcome&);
void check_last_failure(Context&, Outcome&);

}  // namespace dsf::preflight
