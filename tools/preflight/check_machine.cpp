// memory.plan and disk.free: figures of this machine against what serving needs. Source: gb10.md 2, engram.md 8.7.
#include <algorithm>

#include "dsf/base/numeric.h"
#include "dsf/io/file.h"
#include "dsf/model/memory.h"
#include "tools/preflight/context.h"

namespace dsf::preflight {
namespace {
constexpr uint64_t kMinDiskBytes = kGiB;
}

void check_memory(Context& c, Outcome& out) {
  if (!c.config || !c.checkpoint) return Context::skip(out, "needs config.valid and shards.open");
  model::MemoryRequest request = c.plan.memory;
  if (request.max_model_len == 0) request.max_model_len = c.config->max_position_embeddings;
  std::vector<model::StoredTensor> tensors;
  for (const safetensors::File& file : c.checkpoint->files())
    for (const safetensors::TensorInfo& t : file.header().tensors)
      tensors.push_back({t.name, t.n_bytes(), static_cast<uint64_t>(tensor::element_count(t.shape).value_or(0))});
  const auto plan = model::plan_memory(*c.config, tensors, request);
  if (!plan) return out.add(finding_of(plan.error()));
  uint64_t have = c.plan.memory_budget;
  if (have == 0) {
    const auto memory = c.machine.memory();
    if (!memory) return out.add({Status::kFail, "meminfo", "/proc/meminfo: cannot be read", "pass --memory"});
    have = memory->available;
  }
  if (c.node() != nullptr && c.node()->memory_budget > 0) have = std::min(have, c.node()->memory_budget);
  if (request.max_model_len > c.config->max_position_embeddings)
    out.add({Status::kFail, "model_len",
             "--max-model-len: " + std::to_string(request.max_model_len) + " positions, the model has " +
                 std::to_string(c.config->max_position_embeddings),
             "lower it"});
  const uint64_t need = plan->total() + c.plan.memory_margin;
  const bool cpu = request.residence == model::Residence::kExpanded;
  out.summary = std::string(cpu ? "cpu" : "cuda") + ": weights " + format_bytes(plan->weights) + ", caches " +
                format_bytes(plan->caches) + " (" + std::to_string(plan->cache_per_token) + " B a token), workspace " +
                format_bytes(plan->workspace) + ", reserve " + format_bytes(plan->reserve) + ", margin " +
                format_bytes(c.plan.memory_margin) + "; available " + format_bytes(have);
  c.facts["memory_weights"] = std::to_string(plan->weights);
  c.facts["memory_caches"] = std::to_string(plan->caches);
  c.facts["memory_workspace"] = std::to_string(plan->workspace);
  c.facts["memory_total"] = std::to_string(plan->total());
  c.facts["memory_available"] = std::to_string(have);
  if (need <= have) return;
  std::string fix = "stop other jobs, lower --max-model-len or --max-sessions";
  if (plan->weights + plan->reserve + c.plan.memory_margin > have)
    fix = cpu ? "the CPU backend expands every weight to f32: use a machine with a GPU, or a smaller model"
              : "the weights alone do not fit: spread over more ranks or use a pack with fewer bits";
  out.add({Status::kFail, "memory",
           (c.node() != nullptr ? "rank " + std::to_string(c.plan.rank) : std::string("this node")) + ": " +
               format_bytes(need) + " needed, " + format_bytes(have) + " available",
           fix});
}

void check_free_memory(Context& c, Outcome& out) {
  const auto memory = c.machine.memory();
  if (!memory) return Context::skip(out, "/proc/meminfo cannot be read");
  c.facts["machine_memory"] = std::to_string(memory->total);
  out.summary = format_bytes(memory->free) + " free, " + format_bytes(memory->cached) + " page cache, " +
                format_bytes(memory->available) + " available of " + format_bytes(memory->total);
  const auto need = c.facts.find("memory_total");
  if (!c.cuda() || need == c.facts.end()) return;
  const uint64_t bytes = parse_u64(need->second).value_or(0) + c.plan.memory_margin;
  if (memory->available >= bytes && memory->free < bytes)
    out.add({Status::kWarning, "page_cache",
             "memory: " + format_bytes(bytes) + " are needed and available, but only " + format_bytes(memory->free) +
                 " are free: page cache holds the rest, and the driver may fail to get it",
             "as root: sync; echo 3 > /proc/sys/vm/drop_caches"});
}

void check_disk(Context& c, Outcome& out) {
  const auto free = io::free_bytes(c.plan.model);
  if (!free) return out.add(finding_of(free.error()));
  out.summary = format_bytes(*free) + " free";
  c.facts["disk_free"] = std::to_string(*free);
  if (*free < kMinDiskBytes)
    out.add({Status::kWarning, "disk", c.plan.model.string() + ": only " + format_bytes(*free) + " free on this disk",
             "free some space: a full disk stops logs and session files"});
}

}  // namespace dsf::preflight
