#include "brigade/tune/trials.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/collectives/measurement/measure.h"
#include "brigade/device/status_macros.h"
#include "brigade/examples/gpt/training.h"
#include "brigade/examples/gpt/trial.h"
#include "brigade/optim/loss_scaler.h"
#include "brigade/train/times/step_times.h"

namespace brigade::tune {
namespace {

// Small enough that no gradient of a first step overflows, large enough that they are no zeros.
constexpr float kTrialScale = 128;
// The name of its context (gpt::TrainOnThreads).
constexpr absl::string_view kFirstRank = "rank 0";

// Beyond the last step that must count at most so many more do.
constexpr int64_t kMostMoreSteps = 4096;

// Ends a trial when enough of its steps are made, or when the user has said so.
class TrialEnd final : public train::Observer {
 public:
  TrialEnd(const TrialSteps& steps, const std::atomic<bool>& stop) : steps_(steps), stop_(stop) {}

  absl::Status OnStep(const train::StepMetrics& metrics) override {
    if (metrics.step == steps_.first) first_ = metrics.seconds;
    const bool is_enough =
        metrics.step > steps_.last && metrics.seconds - first_ >= steps_.least_seconds;
    if (is_enough || stop_.load(std::memory_order_relaxed)) {
      reached_.store(true, std::memory_order_relaxed);
    }
    return absl::OkStatus();
  }
  absl::Status OnEvaluation(const train::Evaluation&) override { return absl::OkStatus(); }

  const std::atomic<bool>& reached() const { return reached_; }

 private:
  const TrialSteps steps_;
  const std::atomic<bool>& stop_;
  double first_ = 0;
  std::atomic<bool> reached_ = false;
};

// From the begin of step `first` to that of the last one, behind which none begins.
struct Counted {
  int64_t steps = 0;
  double seconds = 0;
};
Counted CountedOf(const std::vector<train::StepTime>& steps, int64_t first) {
  const auto begin = std::find_if(steps.begin(), steps.end(),
                                  [first](const auto& step) { return step.step >= first; });
  if (begin == steps.end()) return {};
  const train::StepTime& end = steps.back();
  return {end.step - begin->step, 1e-9 * static_cast<double>(end.begin_ns - begin->begin_ns)};
}

int64_t SumOf(const int64_t (&bytes)[device::kPurposes]) {
  return std::accumulate(std::begin(bytes), std::end(bytes), int64_t{0});
}

}  // namespace

int Processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

absl::StatusOr<Measured> Try(const gpt::Job& job, int ranks, const TrialSteps& steps,
                             const std::atomic<bool>& stop) {
  if (stop.load(std::memory_order_relaxed)) return absl::CancelledError("interrupted");
  gpt::Job trial = job;
  const bool may_have_more = job.config.replicas == 0 && steps.least_seconds > 0;
  trial.steps = steps.last + 1 + (may_have_more ? kMostMoreSteps : 0);
  trial.evaluate_every = 0;
  trial.checkpoints = {};
  // They would measure the machine, and write over the training's own files.
  trial.config.profiler = {};
  trial.config.monitor = {};
  trial.config.verify_replicas = 0;
  trial.digests = {};
  // Else each trial would tell it.
  trial.config.without_effect = {};
  trial.corpus.held_out.resize(
      std::min(trial.corpus.held_out.size(), static_cast<size_t>(job.model.context) + 1));
  optim::LossScaler& scaler = trial.config.zero.loss_scaler;
  if (scaler.dynamic()) scaler = {.loss_scale = kTrialScale};
  TrialEnd end(steps, stop);
  // The recorder gives them under its lock, and none after the training.
  std::vector<train::StepTime> made;
  const auto keep = [&made](absl::string_view context, auto steps_of_context) {
    if (context != kFirstRank) return;
    std::move(steps_of_context.begin(), steps_of_context.end(), std::back_inserter(made));
  };
  BRIGADE_ASSIGN_OR_RETURN(const auto watch,
                           train::Watch::Create(trial, {.threads = ranks, .on_steps = keep}));
  BRIGADE_ASSIGN_OR_RETURN(
      const train::Outcome outcome,
      gpt::TrainOnThreads(trial, ranks,
                          {&end, watch.get(), may_have_more ? &end.reached() : &stop}));
  if (stop.load(std::memory_order_relaxed)) return absl::CancelledError("interrupted");
  const Counted counted = CountedOf(made, steps.first);
  if (counted.steps < 1 || counted.seconds <= 0) {
    return absl::InternalError("the recorder has not seen the steps of the trial");
  }
  Measured measured = {.seconds = counted.seconds / static_cast<double>(counted.steps),
                       .steps = counted.steps};
  for (const train::RankSummary& rank : outcome.ranks) {
    if (SumOf(rank.memory) > measured.device_bytes) {
      measured.device_bytes = SumOf(rank.memory);
      measured.modelled_bytes = SumOf(rank.memory_model);
    }
    measured.optimizer_seconds +=
        rank.time.optimizer / static_cast<double>(rank.steps * std::ssize(outcome.ranks));
  }
  return measured;
}

absl::Status MeasureMachine(World& world, Figures& figures) {
  figures.processors = Processors();
  std::vector<double> memory(static_cast<size_t>(world.size()));
  std::vector<collectives::Topology> topologies(memory.size());
  BRIGADE_RETURN_IF_ERROR(
      world.OnRanks([&](int rank, collectives::Communicator& communicator, device::Context& context,
                        device::Stream& stream) -> absl::Status {
        // One rank of them: others run beside it.
        if (rank == 0 && context.device().kind == device::DeviceKind::kCuda) figures.processors = 1;
        const auto r = static_cast<size_t>(rank);
        if (communicator.size() > 1) {
          BRIGADE_ASSIGN_OR_RETURN(topologies[r],
                                   collectives::MeasureTopology(communicator, 0, context, stream));
        } else {
          topologies[r].ranks_of_node = {1};
          topologies[r].inside = topologies[r].between = {1e-6, 1e10};
        }
        // Beyond what caches hold, of all ranks at once.
        constexpr int64_t kBytes = int64_t{8} << 20;
        constexpr int kCopies = 4;
        BRIGADE_ASSIGN_OR_RETURN(auto memory_buffer,
                                 context.Allocate(2 * kBytes, device::Purpose::kScratch, "copies"));
        char* const data = static_cast<char*>(memory_buffer.data());
        BRIGADE_RETURN_IF_ERROR(stream.Copy(data, data + kBytes, kBytes));
        BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kCopies; ++i) {
          BRIGADE_RETURN_IF_ERROR(stream.Copy(data, data + kBytes, kBytes));
        }
        BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        memory[r] = 2.0 * kCopies * kBytes / std::max(taken.count(), 1e-9);
        return absl::OkStatus();
      }));
  figures.topology = topologies[0];
  figures.memory_bytes_per_s = *std::min_element(memory.begin(), memory.end());
  // A copy reads and writes each byte.
  figures.link_bytes_per_s = figures.memory_bytes_per_s / 2;
  // Until a trial says it: a check and an update of AdamW move 30 bytes.
  figures.update_s = 30 / figures.memory_bytes_per_s;
  return absl::OkStatus();
}

absl::StatusOr<MeasuredCosts> MeasureCosts(const gpt::Job& job, int64_t small_batch,
                                           int64_t large_batch, World& world,
                                           train::Recorder& recorder) {
  MeasuredCosts costs = {.small_batch = small_batch, .large_batch = large_batch};
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<World::Place>* places, world.PlacesOf(job));
  for (const bool is_small : {true, false}) {
    if (!is_small && large_batch == small_batch) break;
    std::vector<gpt::PassCosts> of_ranks(static_cast<size_t>(world.size()));
    BRIGADE_RETURN_IF_ERROR(world.OnRanks([&](int rank, collectives::Communicator&,
                                              device::Context& context,
                                              device::Stream& stream) -> absl::Status {
      const World::Place& place = (*places)[static_cast<size_t>(rank)];
      gpt::PassShape shape = gpt::ShapeOf(job, place.grid->coordinates());
      shape.batch = is_small ? small_batch : large_batch;
      BRIGADE_ASSIGN_OR_RETURN(of_ranks[static_cast<size_t>(rank)],
                               gpt::MeasurePasses(job, job.corpus, shape,
                                                  {&place.grid->tensor(), &place.grid->context()},
                                                  context, stream, recorder));
      return absl::OkStatus();
    }));
    // A step is as fast as its slowest rank, but ranks of one machine take turns at that.
    gpt::PassCosts& mean = is_small ? costs.small : costs.large;
    const double weight = 1.0 / static_cast<double>(of_ranks.size());
    const auto add = [weight](double& sum, double value) { sum += weight * value; };
    for (const gpt::PassCosts& each : of_ranks) {
      for (const auto part :
           {&gpt::PassCosts::embedding, &gpt::PassCosts::block, &gpt::PassCosts::head}) {
        add((mean.*part).forward, (each.*part).forward);
        add((mean.*part).backward, (each.*part).backward);
      }
      for (const auto part :
           {&gpt::PassCosts::pointwise, &gpt::PassCosts::middle, &gpt::PassCosts::qkv,
            &gpt::PassCosts::expanded, &gpt::PassCosts::attention}) {
        add(mean.*part, each.*part);
      }
    }
  }
  return costs;
}

}  // namespace brigade::tune
