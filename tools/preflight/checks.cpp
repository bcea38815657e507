#include "tools/preflight/checks.h"

#include <array>

namespace dsf::preflight {
namespace {
constexpr std::array<Check, 35> kChecks{{
    {"config.valid", "config.json parses and its fields fit together", check_config},
    {"shards.open", "index and shards agree, every header is sound", check_shards},
    {"shards.proven", "somebody hashed the shards since they last changed", check_proven},
    {"tensors.table", "every tensor the engine loads is there, with its shape and type", check_tensor_table},
    {"tensors.scales", "no block scale is NaN", check_scales},
    {"routers.attach", "every router attaches through the engine's own function", check_router_attach},
    {"routers.image_bias", "the image-router biases are there", check_image_biases},
    {"tokenizer.special", "tokenizer.json has the special tokens, at the ids config.json gives", check_special_tokens},
    {"engram.token_map", "the token map has the size the hash was made for", check_token_map},
    {"engram.rows", "this rank's Engram rows open", check_engram_rows},
    {"engram.content", "the packed rows are those of the packing record or of the tables", check_engram_content},
    {"memory.plan", "weights, caches and workspace fit", check_memory},
    {"memory.free", "what the plan needs is free now, not only reclaimable", check_free_memory},
    {"disk.free", "the disk has room for logs and sessions", check_disk},
    {"busy.files", "no download or packing is in progress here", check_busy_files},
    {"ports.http", "the API's port is free", check_http_port},
    {"ports.rendezvous", "the port on which rank 0 meets its peers is free", check_rendezvous_port},
    {"gpu.present", "there is a GPU and its driver", check_gpu_present},
    {"gpu.idle", "no other process has the GPU open", check_gpu_idle},
    {"node.file", "the node file is complete and names this rank", check_node_file},
    {"node.address", "this rank's address belongs to this machine", check_node_address},
    {"link.state", "every lane's RDMA port is active and has its netdev", check_link_state},
    {"link.speed", "ports and PCIe links run at their full rate", check_link_speed},
    {"link.mtu", "the lanes take large packets", check_link_mtu},
    {"link.gid", "every lane has a RoCE v2 GID of this node's address", check_link_gid},
    {"link.errors", "what the ports have counted", check_link_errors},
    {"host.kernel", "kernel, page size and driver go together", check_kernel},
    {"host.swap", "swap is off", check_swap},
    {"host.huge_pages", "huge pages are not forced", check_huge_pages},
    {"host.memlock", "RDMA buffers may be locked", check_memlock},
    {"host.killers", "no daemon that ends large processes", check_killers},
    {"host.others", "containers and CPU settings", check_others},
    {"self.decode", "this build decodes EXL3 and Engram as published", check_self},
    {"serve.answers", "a started server lists its model and completes a token (--url)", check_serving},
    {"state.failure", "the last run left no record of a failure", check_last_failure},
}};
}  // namespace

std::span<const Check> all_checks() { return kChecks; }

void Outcome::add(Finding f) {
  if (status == Status::kOk || (status != Status::kFail && f.status > status)) status = f.status;
  if (findings.size() < kMaxFindings)
    findings.push_back(std::move(f));
  else
    ++more;
}

}  // namespace dsf::preflight
