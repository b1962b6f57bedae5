#ifndef BRIGADE_LAUNCH_RANKS_H_
#define BRIGADE_LAUNCH_RANKS_H_

// Which rank runs where, and what it is told in its environment.

#include <map>
#include <string>
#include <vector>

#include "brigade/launch/hosts.h"

namespace brigade::launch {

// Names and values.
using Variables = std::map<std::string, std::string>;

struct Rank {
  int rank = 0;
  // On its host, from 0 on.
  int local_rank = 0;
  // Its own ones.
  Variables variables;
};

// What a host is to start.
struct HostRanks {
  // Of all of its ranks: thousands of them cost no more of it than one does.
  Variables variables;
  std::vector<Rank> ranks;
};

// What the ranks of one start have alike.
struct Gathering {
  std::vector<Host> hosts;
  std::string master_addr;
  int master_port = 0;
  // Of the job, in all of its starts.
  std::string run_id;
  // Of this start; "": ranks get none.
  std::string secret;
  int restart = 0;
  int max_restarts = 0;
  // Whether ranks get CUDA_VISIBLE_DEVICES; else it is what it was.
  bool sets_devices = true;
  // The devices that slots are, by their numbers, where some were chosen before; empty: a slot's
  // device has its number.
  std::vector<std::string> devices;
};

// The ranks of each host, numbered host by host. Their variables are those of torchrun (RANK,
// WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, ROLE_*, MASTER_ADDR,
// MASTER_PORT, TORCHELASTIC_*) and of DeepSpeed's launcher (LOCAL_SIZE, CROSS_RANK, CROSS_SIZE,
// NODE_RANK, CUDA_VISIBLE_DEVICES: all slots of the host, of which a rank takes the LOCAL_RANK-th),
// and BRIGADE_JOB_SECRET. Unlike DeepSpeed's, LOCAL_RANK counts from 0 on every host, also where
// hosts differ in their slots.
std::vector<HostRanks> RanksOf(const Gathering& gathering);

// The number of ranks.
int CountRanks(const std::vector<Host>& hosts);

}  // namespace brigade::launch

#endif  // BRIGADE_LAUNCH_RANKS_H_
