#include "brigade/collectives/host_threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"

namespace brigade::collectives {
namespace {

// Of this start of this machine; containers on it have the same.
std::string HostName() {
  std::string name;
  if (std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name)) return name;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return host;
}

}  // namespace

absl::StatusOr<int> ThreadsOfRank(Communicator& communicator) {
  // More processors than a set has: all of them count, and no set tells ranks apart.
  cpu_set_t usable = {};
  const bool is_known = sched_getaffinity(0, sizeof(usable), &usable) == 0;
  const int processors =
      is_known ? CPU_COUNT(&usable) : static_cast<int>(std::thread::hardware_concurrency());
  std::string mine = HostName();
  mine.append(reinterpret_cast<const char*>(&usable), sizeof(usable));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<std::string> all, AllGatherBytes(mine, communicator));
  return std::max(1, processors / static_cast<int>(std::count(all.begin(), all.end(), mine)));
}

}  // namespace brigade::collectives
