#ifndef BRIGADE_BENCHMARKS_COLLECTIVES_TWO_HOST_RANKS_H_
#define BRIGADE_BENCHMARKS_COLLECTIVES_TWO_HOST_RANKS_H_

// Four processes on two hosts, which are network namespaces of this machine, with a slow link
// between the hosts; needs root. The flags --megabits and --packet_bytes, which this file defines,
// say how slow.

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/tuning/topology.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"

namespace brigade::benchmarks {

inline constexpr int kHosts = 2;
inline constexpr int kRanks = 4;

// One of them. Ranks are numbered host by host.
struct HostRank {
  int host;
  collectives::Communicator& world;
  device::Context& context;
  device::Stream& stream;

  bool prints() const { return world.rank() == 0; }

  // Seconds of a call, of the slowest rank: the host's time over `calls` in a row.
  absl::StatusOr<double> SecondsOf(int calls, const std::function<absl::Status()>& call) const;
  // How many calls in a row --iterations says, or fill a turn; after two that are not counted.
  absl::StatusOr<int> CallsOfTurn(const std::function<absl::Status()>& call) const;
};

// Runs `role` on each rank. Unavailable where there are no such hosts; else the first error.
absl::Status RunOnTwoHosts(const std::function<absl::Status(const HostRank&)>& role);

// Lines that begin with "#": `what` is measured, on which link, and the measured topology.
std::string DescribeTwoHosts(const std::string& what, const collectives::Topology& topology);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COLLECTIVES_TWO_HOST_RANKS_H_
