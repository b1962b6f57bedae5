#ifndef BRIGADE_EXAMPLES_GPT_RANK_TRAINER_H_
#define BRIGADE_EXAMPLES_GPT_RANK_TRAINER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/job.h"
#include "brigade/examples/gpt/recorder.h"
#include "brigade/examples/gpt/transformer.h"
#include "brigade/zero/zero_optimizer.h"

namespace brigade::gpt {

// One rank of a training: batches in, metrics out, a ZeroOptimizer between them.
//
// Host waits   The host enqueues up to kInFlight steps ahead, and waits for the oldest before the
//              next: the device never waits for the host. Evaluations wait.
// Interrupt    Each step carries the ranks' wish to stop; all stop after the same step, kInFlight
//              steps later.
// Errors       Those of the parts; FailedPrecondition when the loss scale is stuck at its minimum;
//              OutOfRange when the loss is not finite in a step that was not skipped. The other
//              ranks learn of it by the communicator's end.
class RankTrainer {
 public:
  // A call of all ranks; waits. All must outlive the trainer.
  static absl::StatusOr<std::unique_ptr<RankTrainer>> Create(
      const Job& job, collectives::Communicator& communicator, device::Context& context,
      device::Stream& compute, Recorder& recorder);

  // Trains to the end or until `stop`. `observer` may be null. True if interrupted.
  absl::StatusOr<bool> Train(Observer* observer, const std::atomic<bool>& stop);

  // Of this rank, so far.
  RankSummary Summary() const;
  // Of all ranks. A call of all ranks; waits.
  absl::StatusOr<std::vector<RankSummary>> Gather(const RankSummary& mine);

 private:
  static constexpr int kInFlight = 2;

  // What all ranks add up in a step.
  struct Sums {
    float loss;
    float stop;
  };
  // A step's memory, from when its batch is copied until its metrics are read.
  struct Slot {
    device::Buffer device, host_in, host_out;
    std::unique_ptr<device::Event> computed, done;
    int64_t step = -1;  // in flight; -1: none
  };

  RankTrainer(const Job& job, collectives::Communicator& communicator, device::Context& context,
              device::Stream& compute, Recorder& recorder);

  absl::Status Allocate();

  int64_t micro_batches() const { return job_.config.zero.micro_batches; }
  int64_t text_bytes() const { return job_.model.context + 1; }
  int64_t losses() const { return micro_batches() * batch_ * job_.model.context; }
  // A slot's device memory: sums, losses, texts.
  int64_t TextsOffset() const { return LossesOffset() + losses() * 4; }
  static constexpr int64_t LossesOffset() { return 256; }
  int64_t SlotBytes() const { return TextsOffset() + micro_batches() * batch_ * text_bytes(); }
  nn::Texts TextsOf(const Slot& slot, int64_t micro_batch) const;
  float* LossesOf(const Slot& slot, int64_t micro_batch) const;

  absl::Status EnqueueStep(int64_t step, bool stop);
  // Waits for the slot's step, if it has one, and tells the observer.
  absl::Status Collect(Slot& slot, Observer* observer);
  absl::Status CollectAll(Observer* observer);
  // Time and traffic between the two are the steps'.
  void StartCounting();
  absl::Status StopCounting();  // waits
  absl::StatusOr<double> Evaluate();
  absl::Status EvaluateAndTell(int64_t step, Observer* observer);

  const Job& job_;
  const int64_t batch_;  // texts of a micro-batch on this rank
  collectives::Communicator& communicator_;
  device::Context& context_;
  device::Stream& compute_;
  Recorder& recorder_;
  std::unique_ptr<zero::ZeroOptimizer> zero_;
  std::unique_ptr<Transformer> transformer_;
  device::Buffer one_;  // [2] float: 1, and the loss scale
  std::array<Slot, kInFlight> slots_;
  std::vector<float> learning_rates_;
  RankSummary summary_;
  bool stopped_ = false;
  zero::Traffic traffic_before_;  // when counting started
  int64_t started_ns_ = 0;        // counting
  int64_t trained_ns_ = 0;        // before that
  int64_t collected_ns_ = 0;      // the last step
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_RANK_TRAINER_H_
