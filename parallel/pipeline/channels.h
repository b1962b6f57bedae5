#ifndef BRIGADE_PARALLEL_PIPELINE_CHANNELS_H_
#define BRIGADE_PARALLEL_PIPELINE_CHANNELS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/simulate.h"

namespace brigade::parallel {

// Which transfers go one after the other: with one chunk on each stage all activations, and all
// gradients; with several those of one kind between the same two stages, because chunks send at the
// same time in both directions.
ChannelModel ChannelModelOf(const PipelineShape& shape);

// A communicator and a stream of one stage, on which its transfers of one channel go in the order
// of its list.
struct Channel {
  // The grid's.
  collectives::Communicator* communicator = nullptr;
  // The stages, by their rank in the communicator.
  std::vector<int> stages = {};
  std::unique_ptr<device::Stream> stream = nullptr;

  int RankOf(int stage) const;
};

// All channels of one stage.
//
// Memory       A communicator and a stream each: two with one chunk on each stage; else up to four,
//              with kZeroBubbleV up to eight. On NCCL each communicator takes memory of the GPU.
class Channels {
 public:
  // A call of all stages of the grid's pipeline group, with the same schedule; waits. Errors are of
  // the stage that gets them: the others wait for it until it ends the grid.
  static absl::StatusOr<Channels> Create(const PipelineSchedule& schedule, Grid& grid,
                                         device::Context& context);

  // Of a transfer of this stage's list.
  Channel& Of(const PipelineItem& transfer);
  std::vector<Channel>& all() { return channels_; }

  // Payload bytes that this stage has sent so far.
  int64_t sent_bytes() const;

 private:
  Channels(const PipelineShape& shape, int stage) : shape_(shape), stage_(stage) {}

  size_t SlotOf(const PipelineItem& transfer) const;

  PipelineShape shape_;
  int stage_;
  std::vector<Channel> channels_;
  // By the transfer's kind and its other stage: the index of its channel.
  std::vector<int> of_transfer_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_CHANNELS_H_
