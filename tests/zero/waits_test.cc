// Each wait between the streams is needed: without it the race checker reports a race, whatever
// the timing.

#include <algorithm>
#include <string>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using internal::WaitPoint;

struct Case {
  WaitPoint point;
  const char* name;
  int stage;
  int micro_batches = 1;
  int64_t persistence_threshold = 0;
  OffloadOptions offload = {};
  // Whether units are acquired.
  bool acquires = true;
  // Whether the passes are those of chunks, in runs.
  bool has_runs = false;
  // ZeroOptions::shard_ranks, of 4 ranks.
  int shard_ranks = 0;
  // Whether gradients are exchanged.
  bool exchanges = false;
};

// Of the toy's units.
const std::vector<int> kChunks = {0, 2, 4};

// A step in which no unit is acquired, and so no gather orders what comes after the last update;
// all gradients are zero.
absl::Status StepWithoutUnits(ZeroOptimizer& zero) {
  absl::Status status;
  for (const int chunk : zero.options().runs) {
    status.Update(zero.BeginRun(chunk));
    status.Update(zero.EndRun());
  }
  const int chunks = std::max(1, static_cast<int>(zero.options().chunks.size()));
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int micro = 0; micro < zero.options().micro_batches; ++micro) {
      status.Update(zero.FinishBackward(chunk));
    }
  }
  status.Update(zero.Step());
  return status;
}

// A step with two additions: weights are read once more, for an evaluation, between the backward
// pass and the update; and the loss may be scaled before the first layer.
absl::Status Step(ZeroOptimizer& zero, ToyTrainer& trainer, float* early_loss) {
  absl::Status status;
  for (int micro = 0; micro < zero.options().micro_batches; ++micro) {
    if (early_loss != nullptr) {
      status.Update(zero.ScaleLoss(early_loss, early_loss + 1, 1, precision::DType::kFloat32));
    }
    status.Update(trainer.MicroBatch(micro));
  }
  status.Update(trainer.Forward());
  status.Update(zero.Step());
  return status;
}

// The number of races that are reported in a few steps, with the wait or without it.
size_t Races(const Case& c, bool omit) {
  device::RaceChecker checker;
  ZeroOptions options;
  options.stage = c.stage;
  options.bucket_elements = 1000;
  options.micro_batches = c.micro_batches;
  options.persistence_threshold = c.persistence_threshold;
  options.offload = c.offload;
  options.shard_ranks = c.shard_ranks;
  if (c.exchanges) options.gradient_compression = CompressionOptions();
  if (c.has_runs) {
    options.tied_apart = true;
    options.chunks = kChunks;
    options.runs = RunsOf(InterleavedPasses(3, c.micro_batches));
  }
  const int ranks = c.shard_ranks > 0 ? 4 : 2;
  collectives::OnThreads({.size = ranks, .race_checker = &checker}, [&](collectives::Rank& self) {
    auto zero = CreateZero(ToyModel(), options, self);
    ASSERT_OK(zero);
    if (omit) ZeroOptimizerTestPeer::OmitWait(**zero, c.point);
    ASSERT_OK(InitializeToy(**zero));
    ToyTrainer trainer(**zero, self);
    // A call or a stream may fail because of the race, which ends the communicator. The checker has
    // the report in any case.
    absl::Status status;
    const device::Buffer loss =
        self.context->Allocate(2 * sizeof(float), device::Purpose::kActivations).value();
    auto reader = self.context->CreateStream("reader").value();
    CapturedState seen[3];
    for (int step = 0; step < 3; ++step) {
      if (c.point == WaitPoint::kStateStaged || c.point == WaitPoint::kHostAtRest) {
        status.Update((*zero)->ShareErrors());
        status.Update((*zero)->LendState(*reader));
        status.Update(EnqueueCapture(**zero, *reader, seen[step]));
        status.Update((*zero)->ReturnState());
      }
      if (!c.acquires) {
        status.Update(StepWithoutUnits(**zero));
        continue;
      }
      if (c.has_runs) {
        status.Update(trainer.Step());
        continue;
      }
      const bool early = c.point == WaitPoint::kStepDecided;
      status.Update(Step(**zero, trainer, early ? loss.as<float>().data() : nullptr));
    }
    status.Update((*zero)->step_stream().Synchronize());
    status.Update(self.stream->Synchronize());
    status.Update(reader->Synchronize());
    // Waits, so that no rank frees its memory while others still compute. The race may also have
    // changed the state that it goes back to.
    status.Update((*zero)->CancelStep());
    EXPECT_TRUE(omit || status.ok()) << status;
  });
  return checker.reports().size();
}

class WaitsTest : public ::testing::TestWithParam<Case> {};

TEST_P(WaitsTest, AnOmittedWaitIsReported) {
  EXPECT_EQ(Races(GetParam(), false), 0u);
  EXPECT_GT(Races(GetParam(), true), 0u);
}

// The stages in which no other wait happens to cover the one omitted: a gather follows earlier
// reductions on the same stream, which covers the memory of gradients wherever every micro-batch
// gathers.
const OffloadOptions kHost = {.optimizer_state = device::Tier::kHost};
const OffloadOptions kHalf = {.optimizer_state = device::Tier::kHost, .host_share = 0.5};
const OffloadOptions kHostParameters = {.optimizer_state = device::Tier::kHost,
                                        .parameters = device::Tier::kHost};
const OffloadOptions kDelayed = {
    .optimizer_state = device::Tier::kHost, .delay_update = true, .delay_warm_up = 0};
const OffloadOptions kFile = InFile(device::Tier::kDevice);
const OffloadOptions kFileParameters = InFile(device::Tier::kFile);
const Case kCases[] = {
    {WaitPoint::kGradientsWritten, "GradientsWritten0", 0},
    {WaitPoint::kGradientsWritten, "GradientsWritten1", 1},
    {WaitPoint::kGradientsWritten, "GradientsWritten2", 2},
    {WaitPoint::kGradientsWritten, "GradientsWritten3", 3},
    {WaitPoint::kGradientMemoryFree, "GradientMemoryFree0", 0, 2},
    {WaitPoint::kGradientMemoryFree, "GradientMemoryFree1", 1, 2},
    {WaitPoint::kGradientMemoryFree, "GradientMemoryFree2", 2},
    {WaitPoint::kGradientMemoryFree, "GradientMemoryFree3", 3, 2, 10000},
    {WaitPoint::kParametersGathered, "ParametersGathered0", 0},
    {WaitPoint::kParametersGathered, "ParametersGathered1", 1},
    {WaitPoint::kParametersGathered, "ParametersGathered2", 2},
    {WaitPoint::kParametersGathered, "ParametersGathered3", 3},
    {WaitPoint::kParameterMemoryFree, "ParameterMemoryFree3", 3},
    {WaitPoint::kBackwardFinished, "BackwardFinished0", 0},
    {WaitPoint::kBackwardFinished, "BackwardFinished1", 1},
    {WaitPoint::kBackwardFinished, "BackwardFinished2", 2},
    {WaitPoint::kBackwardFinished, "BackwardFinished3", 3, 1, 10000},
    {WaitPoint::kStepDecided, "StepDecided0", 0},
    {WaitPoint::kStepDecided, "StepDecided3", 3},
    {WaitPoint::kStateStaged, "StateStaged0", 0},
    {WaitPoint::kStateStaged, "StateStaged1", 1},
    {WaitPoint::kStateStaged, "StateStaged2", 2},
    {WaitPoint::kStateStaged, "StateStaged3", 3},
    {WaitPoint::kStateStaged, "HostStateStaged2", 2, 1, 0, kHost},
    {WaitPoint::kStateStaged, "HostStateStaged3", 3, 1, 0, kHost},
    {WaitPoint::kBackwardFinished, "HostBackwardFinished1", 1, 1, 0, kHost},
    {WaitPoint::kGradientReduced, "GradientReduced1", 1, 1, 0, kHost},
    {WaitPoint::kGradientReduced, "GradientReduced2", 2, 1, 0, kHost},
    {WaitPoint::kGradientReduced, "GradientReduced3", 3, 2, 0, kHost},
    {WaitPoint::kGradientCopied, "GradientCopied1", 1, 1, 0, kHost, false},
    {WaitPoint::kGradientCopied, "GradientCopied2", 2, 1, 0, kHost},
    {WaitPoint::kGradientCopied, "GradientCopied3", 3, 2, 0, kHost, false},
    {WaitPoint::kHostGradientFree, "HostGradientFree3", 3, 1, 0, kHost, false},
    {WaitPoint::kGradientOnHost, "GradientOnHost1", 1, 1, 0, kHost},
    {WaitPoint::kGradientOnHost, "GradientOnHost2", 2, 1, 0, kHalf},
    {WaitPoint::kGradientOnHost, "GradientOnHost3", 3, 1, 0, kHostParameters},
    {WaitPoint::kHostWeightsFree, "HostWeightsFree3", 3, 1, 0, kHost, false},
    {WaitPoint::kWeightsUpdated, "WeightsUpdated1", 1, 1, 0, kHost},
    {WaitPoint::kWeightsUpdated, "WeightsUpdated3", 3, 1, 0, kHost},
    {WaitPoint::kWeightsUpdated, "WeightsUpdatedParameters3", 3, 1, 0, kHostParameters},
    {WaitPoint::kWeightsOnDevice, "WeightsOnDevice1", 1, 1, 0, kHost},
    {WaitPoint::kWeightsOnDevice, "WeightsOnDevice3", 3, 1, 0, kHost},
    {WaitPoint::kWeightsOnDevice, "WeightsOnDeviceParameters3", 3, 1, 0, kHostParameters},
    {WaitPoint::kParameterMemoryFree, "ParameterMemoryFreeParameters3", 3, 1, 0, kHostParameters},
    // The host updates beside the passes that follow.
    {WaitPoint::kBackwardFinished, "DelayedBackwardFinished2", 2, 1, 0, kDelayed},
    {WaitPoint::kHostGradientFree, "DelayedHostGradientFree3", 3, 1, 0, kDelayed, false},
    {WaitPoint::kGradientOnHost, "DelayedGradientOnHost2", 2, 1, 0, kDelayed},
    {WaitPoint::kHostWeightsFree, "DelayedHostWeightsFree1", 1, 1, 0, kDelayed},
    {WaitPoint::kWeightsUpdated, "DelayedWeightsUpdated1", 1, 1, 0, kDelayed},
    {WaitPoint::kWeightsOnDevice, "DelayedWeightsOnDevice2", 2, 1, 0, kDelayed},
    {WaitPoint::kStateStaged, "DelayedStateStaged2", 2, 1, 0, kDelayed},
    {WaitPoint::kHostAtRest, "DelayedHostAtRest1", 1, 1, 0, kDelayed},
    {WaitPoint::kHostAtRest, "HostAtRest3", 3, 1, 0, kHost},
    {WaitPoint::kHostAtRest, "HostAtRestParameters3", 3, 1, 0, kHostParameters},
    // In chunks and runs, with tied parameters apart.
    {WaitPoint::kParametersGathered, "RunsParametersGathered3", 3, 2, 0, {}, true, true},
    {WaitPoint::kParametersGathered, "UnusedRunsParametersGathered3", 3, 1, 0, {}, false, true},
    {WaitPoint::kParameterMemoryFree, "RunsParameterMemoryFree3", 3, 2, 0, {}, true, true},
    {WaitPoint::kWeightsOnDevice, "RunsWeightsOnDevice3", 3, 2, 0, kHostParameters, true, true},
    {WaitPoint::kGradientsWritten, "ChunksGradientsWritten2", 2, 2, 0, {}, true, true},
    {WaitPoint::kGradientMemoryFree, "ChunksGradientMemoryFree2", 2, 2, 0, {}, true, true},
    {WaitPoint::kGradientReduced, "ChunksGradientReduced2", 2, 1, 0, kHost, true, true},
    {WaitPoint::kGradientCopied, "ApartGradientCopied2", 2, 1, 0, kHost, true, true},
    // With two groups that have a whole state each.
    {WaitPoint::kSummedInside, "SummedInside0", 0, 1, 0, {}, true, false, 2},
    {WaitPoint::kSummedInside, "SummedInside1", 1, 1, 0, {}, true, false, 2},
    {WaitPoint::kSummedInside, "SummedInside2", 2, 2, 0, {}, true, false, 2},
    {WaitPoint::kSummedInside, "SummedInside3", 3, 1, 0, {}, true, false, 2},
    {WaitPoint::kSummedInside, "HostSummedInside3", 3, 1, 0, kHost, true, false, 2},
    {WaitPoint::kSummedInside, "RunsSummedInside2", 2, 2, 0, {}, true, true, 2},
    {WaitPoint::kSummedBetween, "SummedBetween0", 0, 1, 0, {}, true, false, 2},
    {WaitPoint::kSummedBetween, "SummedBetween1", 1, 1, 0, {}, true, false, 2},
    {WaitPoint::kSummedBetween, "SummedBetween2", 2, 2, 0, {}, true, false, 2},
    {WaitPoint::kSummedBetween, "SummedBetween3", 3, 1, 0, {}, true, false, 2},
    {WaitPoint::kSummedBetween, "SummedBetweenOfOne1", 1, 1, 0, {}, true, false, 1},
    {WaitPoint::kSummedBetween, "HostSummedBetween2", 2, 1, 0, kHost, true, false, 2},
    {WaitPoint::kSummedBetween, "RunsSummedBetween2", 2, 2, 0, {}, true, true, 2},
    // With exchanges.
    {WaitPoint::kGradientsWritten, "ExchangedGradientsWritten2", 2, 2, 0, {}, true, false, 0, true},
    {WaitPoint::kGradientMemoryFree, "ExchangedMemoryFree0", 0, 2, 0, {}, true, false, 0, true},
    {WaitPoint::kGradientMemoryFree, "ExchangedMemoryFree2", 2, 2, 0, {}, true, false, 0, true},
    {WaitPoint::kBackwardFinished, "ExchangedBackwardFinished1", 1, 1, 0, {}, true, false, 0, true},
    {WaitPoint::kStateStaged, "ExchangedStateStaged2", 2, 1, 0, {}, true, false, 0, true},
    // With a file.
    {WaitPoint::kChunkFree, "ChunkFree2", 2, 1, 0, kFile},
    {WaitPoint::kChunkFree, "ChunkFreeParameters3", 3, 1, 0, kFileParameters},
    {WaitPoint::kChunkRead, "ChunkRead1", 1, 1, 0, kFile},
    {WaitPoint::kChunkRead, "ChunkReadParameters3", 3, 1, 0, kFileParameters},
    {WaitPoint::kChunkUpdated, "ChunkUpdated2", 2, 1, 0, kFile},
    {WaitPoint::kChunkUpdated, "ChunkUpdatedParameters3", 3, 1, 0, kFileParameters},
    {WaitPoint::kCommitted, "Committed2", 2, 1, 0, kFile},
    {WaitPoint::kCommitted, "CommittedParameters3", 3, 1, 0, kFileParameters},
    {WaitPoint::kHostWeightsFree, "FileWeightsFree3", 3, 1, 0, kFileParameters},
    {WaitPoint::kHostGradientFree, "FileHostGradientFree3", 3, 1, 0, kFile, false},
    {WaitPoint::kGradientOnHost, "FileGradientOnHost2", 2, 1, 0, kFile},
    {WaitPoint::kWeightsUpdated, "FileWeightsUpdated1", 1, 1, 0, kFile},
    {WaitPoint::kWeightsOnDevice, "FileWeightsOnDevice3", 3, 1, 0, kFileParameters},
    {WaitPoint::kStateStaged, "FileStateStaged2", 2, 1, 0, kFile},
    {WaitPoint::kHostAtRest, "FileAtRest2", 2, 1, 0, kFile},
    {WaitPoint::kHostAtRest, "FileAtRestParameters3", 3, 1, 0, kFileParameters},
};

INSTANTIATE_TEST_SUITE_P(Points, WaitsTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace brigade::zero
