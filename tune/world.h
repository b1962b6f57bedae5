#ifndef BRIGADE_TUNE_WORLD_H_
#define BRIGADE_TUNE_WORLD_H_

// The ranks of a training before there is one: communicators of all groups of every grid that is
// asked for, on threads of this process, which tell what they would allocate, choose and take. Of
// trainings they are the same as those of threads; those of processes may have other workspaces.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/options.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/parallel/grid.h"
#include "brigade/train/config/config.h"
#include "brigade/train/stage_setup.h"

namespace brigade::tune {

class World {
 public:
  // `tracer` sees what the ranks' streams do, or is null; it outlives the world.
  static absl::StatusOr<std::unique_ptr<World>> Create(
      int ranks, device::Device device, const collectives::CommunicatorOptions& communicator,
      device::Tracer* tracer);
  ~World();

  int size() const { return static_cast<int>(ranks_.size()); }

  // One rank's place in a grid.
  struct Place {
    std::unique_ptr<parallel::Grid> grid;
    // With kTied's group, wherever a part has the tokens.
    std::unique_ptr<train::ZeroGroups> zero_groups;
  };
  // [rank]. Made when it is first asked for.
  absl::StatusOr<const std::vector<Place>*> PlacesOf(const gpt::Job& job);

  // Of one rank.
  device::Context& context(int rank) { return *ranks_[static_cast<size_t>(rank)].context; }

  // Runs `body` on a thread for each rank; the first error of a rank, whose world ends with it: it
  // is of no use any more.
  absl::Status OnRanks(const std::function<absl::Status(int rank, collectives::Communicator&,
                                                        device::Context&, device::Stream&)>& body);

 private:
  struct Rank {
    std::unique_ptr<device::Context> context;
    std::unique_ptr<device::Stream> stream;
    std::unique_ptr<collectives::Communicator> communicator;
  };
  World() = default;

  std::vector<Rank> ranks_;
  // By what decides about groups.
  std::map<std::string, std::vector<Place>> places_;
};

}  // namespace brigade::tune

#endif  // BRIGADE_TUNE_WORLD_H_
