#include "brigade/tune/world.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "brigade/collectives/bootstrap/launch_info.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/collectives/init.h"
#include "brigade/device/status_macros.h"

namespace brigade::tune {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);

std::string KeyOf(const train::TrainConfig& config) {
  return absl::StrCat(parallel::ToString(config.grid), " ", config.zero.shard_ranks, " ",
                      config.zero.hpz_ranks, " ", config.zero.node_ranks, " ", config.replicas);
}

}  // namespace

absl::StatusOr<std::unique_ptr<World>> World::Create(
    int ranks, device::Device device, const collectives::CommunicatorOptions& communicator,
    device::Tracer* tracer) {
  BRIGADE_ASSIGN_OR_RETURN(auto group,
                           collectives::ThreadGroup::Create(
                               {.size = ranks, .timeout = kTimeout, .stream_timeout = kTimeout}));
  std::unique_ptr<World> world(new World);
  for (int rank = 0; rank < ranks; ++rank) {
    device::ContextOptions options;
    options.device = device;
    options.compute_threads = 1;
    options.name = absl::StrCat("rank ", rank);
    options.tracer = tracer;
    Rank self;
    BRIGADE_ASSIGN_OR_RETURN(self.context, device::Context::Create(options));
    BRIGADE_ASSIGN_OR_RETURN(self.stream, self.context->CreateStream("compute"));
    collectives::LaunchInfo launch_info;
    launch_info.rank = rank;
    launch_info.size = ranks;
    BRIGADE_ASSIGN_OR_RETURN(
        self.communicator,
        collectives::Init(launch_info, {.group = group, .communicator = communicator},
                          *self.context));
    world->ranks_.push_back(std::move(self));
  }
  return world;
}

World::~World() {
  places_.clear();
  for (Rank& rank : ranks_) rank.communicator.reset();
}

absl::Status World::OnRanks(
    const std::function<absl::Status(int rank, collectives::Communicator&, device::Context&,
                                     device::Stream&)>& body) {
  std::vector<absl::Status> statuses(ranks_.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    threads.emplace_back([&, r] {
      Rank& self = ranks_[r];
      statuses[r] = body(static_cast<int>(r), *self.communicator, *self.context, *self.stream);
      // Others may wait for it.
      if (!statuses[r].ok()) self.communicator->Abort(statuses[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) BRIGADE_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

absl::StatusOr<const std::vector<World::Place>*> World::PlacesOf(const gpt::Job& job) {
  const std::string key = KeyOf(job.config);
  const auto found = places_.find(key);
  if (found != places_.end()) return &found->second;
  std::vector<Place> places(ranks_.size());
  BRIGADE_RETURN_IF_ERROR(OnRanks([&](int rank, collectives::Communicator& communicator,
                                      device::Context&, device::Stream&) -> absl::Status {
    Place& place = places[static_cast<size_t>(rank)];
    BRIGADE_ASSIGN_OR_RETURN(place.grid, parallel::Grid::Create(job.config.grid, communicator));
    BRIGADE_ASSIGN_OR_RETURN(train::ZeroGroups groups,
                             train::CreateZeroGroups(job.config, *place.grid,
                                                     /*is_tied_outside=*/false));
    place.zero_groups = std::make_unique<train::ZeroGroups>(groups);
    return absl::OkStatus();
  }));
  return &places_.emplace(key, std::move(places)).first->second;
}

}  // namespace brigade::tune
