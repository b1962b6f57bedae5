#ifndef BRIGADE_EXAMPLES_GPT_MEMORY_FLAGS_H_
#define BRIGADE_EXAMPLES_GPT_MEMORY_FLAGS_H_

// The flags that say what memory a rank has, what is not in its device's, and what is made again.

#include <cstdint>
#include <optional>
#include <string>

#include "brigade/device/memory_stats.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/recompute/policy.h"
#include "brigade/train/config/config.h"
#include "brigade/train/config/flag_refusals.h"

namespace brigade::gpt {

struct MemoryFlags {
  // Of --offload: "", "none", "optimizer", "all"; of --offload_to and --offload_dir.
  std::string offload = {};
  device::Tier tier = device::Tier::kHost;
  std::string directory = {};
  bool delays_update = false;
  std::optional<recompute::Policy> recompute = {};
  std::optional<train::RecomputeTimes> recompute_times = {};
  std::optional<recompute::StashTier> stash = {};
  // Of --device_limit and --device_link.
  std::optional<int64_t> limit_bytes = {}, link = {};

  bool offloads() const { return offload == "optimizer" || offload == "all"; }
};

// Each by itself.
MemoryFlags MemoryOfFlags(train::Refusals& refusals);

// Puts them before what the job's config says, and adds what does not go together.
void SetMemory(const MemoryFlags& flags, Job& job, train::Refusals& refusals);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_MEMORY_FLAGS_H_
