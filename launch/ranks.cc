#include "brigade/launch/ranks.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace brigade::launch {

int CountRanks(const std::vector<Host>& hosts) {
  size_t count = 0;
  for (const Host& host : hosts) count += host.slots.size();
  return static_cast<int>(count);
}

std::vector<HostRanks> RanksOf(const Gathering& gathering) {
  const std::string size = absl::StrCat(CountRanks(gathering.hosts));
  std::vector<HostRanks> ranks;
  int next = 0;
  for (size_t h = 0; h < gathering.hosts.size(); ++h) {
    const Host& host = gathering.hosts[h];
    const std::string local_size = absl::StrCat(host.slots.size());
    Variables of_host = {
        {"WORLD_SIZE", size},
        {"ROLE_WORLD_SIZE", size},
        {"ROLE_NAME", "default"},
        {"LOCAL_SIZE", local_size},
        {"LOCAL_WORLD_SIZE", local_size},
        {"GROUP_RANK", absl::StrCat(h)},
        {"CROSS_RANK", absl::StrCat(h)},
        {"NODE_RANK", absl::StrCat(h)},
        {"GROUP_WORLD_SIZE", absl::StrCat(gathering.hosts.size())},
        {"CROSS_SIZE", absl::StrCat(gathering.hosts.size())},
        {"MASTER_ADDR", gathering.master_addr},
        {"MASTER_PORT", absl::StrCat(gathering.master_port)},
        {"TORCHELASTIC_RESTART_COUNT", absl::StrCat(gathering.restart)},
        {"TORCHELASTIC_MAX_RESTARTS", absl::StrCat(gathering.max_restarts)},
        {"TORCHELASTIC_RUN_ID", gathering.run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
    };
    if (gathering.sets_devices) {
      of_host["CUDA_VISIBLE_DEVICES"] =
          absl::StrJoin(host.slots, ",", [&](std::string* out, int slot) {
            const auto place = static_cast<size_t>(slot);
            absl::StrAppend(
                out, gathering.devices.empty() ? absl::StrCat(slot) : gathering.devices[place]);
          });
    }
    if (!gathering.secret.empty()) of_host["BRIGADE_JOB_SECRET"] = gathering.secret;
    HostRanks& here = ranks.emplace_back();
    here.variables = std::move(of_host);
    for (size_t i = 0; i < host.slots.size(); ++i) {
      Rank rank = {next++, static_cast<int>(i), {}};
      rank.variables["RANK"] = rank.variables["ROLE_RANK"] = absl::StrCat(rank.rank);
      rank.variables["LOCAL_RANK"] = absl::StrCat(rank.local_rank);
      here.ranks.push_back(std::move(rank));
    }
  }
  return ranks;
}

}  // namespace brigade::launch
