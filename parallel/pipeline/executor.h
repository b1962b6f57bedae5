#ifndef BRIGADE_PARALLEL_PIPELINE_EXECUTOR_H_
#define BRIGADE_PARALLEL_PIPELINE_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/engines/registration.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/parallel/grid.h"
#include "brigade/parallel/pipeline/buffers.h"
#include "brigade/parallel/pipeline/channels.h"
#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/stage_module.h"
#include "brigade/precision/dtype.h"

namespace brigade::parallel {

// What passes from one part of the model to the next: an array of one shape at every boundary, and
// its gradient.
struct BoundaryShape {
  int64_t elements = 0;
  precision::DType dtype = precision::DType::kFloat32;

  int64_t bytes() const { return elements * precision::SizeOf(dtype); }
};

namespace internal {
// The reasons for which the compute stream and those of the channels wait for each other.
enum class PipelineWait : uint8_t {
  // A computation reads what has been received.
  kReceived,
  // What is sent has been computed.
  kComputed,
  // A computation writes where what was there before has been sent.
  kSent,
  // What is received goes where computations have ended with what was there before.
  kRead,
};
}  // namespace internal

// Carries out one stage's list of a schedule: calls a StageModule for its computations, and
// exchanges boundaries with the stages beside it, on streams of its own, beside compute.
//
// Order        Check (check.h) has proved the lists before anything runs: stages cannot wait for
//              each other, and each activation is made before it is used and freed once. All ranks
//              of the grid have the same lists, or Create is an error on all of them.
// Memory       Boundaries, of purpose activations: Bytes, all of it at Create. The communicators
//              and streams of Channels.
// Traffic      Each item that sends, sends one boundary: SentInStep.
// Stream       `compute` is the same stream in all calls, and all calls of the module get it.
//              Nothing waits on the host, and nothing is allocated, once queues have been at their
//              deepest. (On an engine whose calls meet on the host, such as that of threads, a
//              transfer waits there for the other stage to come to it.)
// Determinism  The module's calls come in the order of the list: results are those of its own
//              determinism, whatever the times.
// Errors       Create: on all ranks, InvalidArgument for lists that are wrong or that differ,
//              naming items or ranks, and ResourceExhausted where one lacks memory; those of
//              Channels. Run: the first error of the module or of a channel, with the item and the
//              stage; the executor is of no use any more. The rank that gets an error that not all
//              get ends the grid (Grid::Abort), in which others may wait for it.
// Threads      One at a time.
class PipelineExecutor {
 public:
  // A call of all ranks of the grid; waits. The stage is the grid's coordinate. `grid`, `context`
  // and `compute` must outlive the executor.
  static absl::StatusOr<std::unique_ptr<PipelineExecutor>> Create(PipelineSchedule schedule,
                                                                  const BoundaryShape& boundary,
                                                                  Grid& grid,
                                                                  device::Context& context,
                                                                  device::Stream& compute);

  // What a stage of these lists has room for; errors of ListIndex.
  static absl::StatusOr<StageBuffers> BuffersOf(const PipelineSchedule& schedule, int stage);
  // Of the boundaries of a stage with so many buffers, those of its activations left out.
  static int64_t Bytes(const StageBuffers& buffers, const BoundaryShape& boundary);

  const PipelineSchedule& schedule() const { return schedule_; }
  const BoundaryShape& boundary() const { return boundary_; }
  int stage() const { return stage_; }
  const StageList& list() const { return schedule_.lists[static_cast<size_t>(stage_)]; }
  // What the stage has room for. The module provides activations and what is deferred.
  const StageBuffers& buffers() const { return plan_.counts(); }
  int64_t SentInStep() const;
  // Payload bytes so far.
  int64_t sent_bytes() const { return channels_.sent_bytes(); }

  // Enqueues a step.
  absl::Status Run(StageModule& module);
  // Enqueues the forward passes of a step, and what they exchange, in the order of the list: to
  // evaluate. A call of all stages, between two steps. Activations are of no pass that follows.
  absl::Status RunForward(StageModule& module);

  // Waits for what is enqueued, transfers too: the error of a stream, or of a communicator.
  absl::Status Synchronize();

 private:
  friend class PipelineExecutorTestPeer;

  // Memory that compute and a channel use by turns.
  struct Buffer {
    void* data = nullptr;
    // Who has written to it records `filled`, who has read it `emptied`, on its stream.
    std::unique_ptr<device::Event> filled = nullptr, emptied = nullptr;
    bool was_used = false;
  };

  PipelineExecutor(PipelineSchedule schedule, const BoundaryShape& boundary, BufferPlan plan,
                   int stage, Channels channels, device::Stream& compute);

  absl::Status Allocate(device::Context& context);
  // `is_step`: else of the forward passes alone.
  absl::Status RunItem(const PipelineItem& item, bool is_step, StageModule& module);
  absl::Status Compute(const PipelineItem& item, bool is_step, StageModule& module);
  absl::Status Transfer(const PipelineItem& item);
  absl::Status Wait(internal::PipelineWait point, device::Event& event, device::Stream& waiter);

  absl::Status Call(ItemKind kind, const StagePass& pass, StageModule& module);
  // Null: none.
  static Buffer* Find(std::vector<Buffer>& buffers, int number);
  // Where a pass leaves what it computes: to be sent, or for another chunk of this stage. Null at
  // the model's end, and begin.
  Buffer* Output(int chunk, int micro_batch);
  Buffer* InputGradient(int chunk, int micro_batch);

  const PipelineSchedule schedule_;
  const BoundaryShape boundary_;
  const BufferPlan plan_;
  const int stage_;
  device::Stream& compute_;
  device::Buffer memory_;
  std::vector<Buffer> inputs_, outputs_, output_gradients_, input_gradients_;
  // Before the memory they end, with what they have enqueued.
  Channels channels_;
  std::vector<collectives::Registration> registrations_;
  // The point at which nothing waits: with it a test shows that the race checker reports it.
  std::optional<internal::PipelineWait> omitted_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_EXECUTOR_H_
