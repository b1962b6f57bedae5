// Each wait between the streams of an executor is needed: without it the race checker reports a
// race, whatever the timing.

#include "brigade/device/race_checker/race_checker.h"
#include "brigade/parallel/pipeline/executor.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/parallel/pipeline/toy_pipeline.h"
#include "gtest/gtest.h"

namespace brigade::parallel {

class PipelineExecutorTestPeer {
 public:
  static void OmitWait(PipelineExecutor& executor, internal::PipelineWait point) {
    executor.omitted_ = point;
  }
};

namespace {

using collectives::Rank;

size_t Races(internal::PipelineWait point, bool omit) {
  // With 1F1B what comes back tells that all has been sent.
  const ScheduleKind kind = point == internal::PipelineWait::kSent
                                ? ScheduleKind::kGpipe
                                : ScheduleKind::kOneForwardOneBackward;
  const PipelineSchedule schedule =
      CreateSchedule({{.kind = kind}, /*stages=*/2, /*micro_batches=*/6}).value();
  device::RaceChecker checker;
  collectives::OnThreads({.size = 2, .race_checker = &checker}, [&](Rank& self) {
    auto grid = Grid::Create({.pipeline = 2}, *self.communicator).value();
    auto executor = PipelineExecutor::Create(schedule, {kToyWidth, precision::DType::kFloat32},
                                             *grid, *self.context, *self.stream)
                        .value();
    if (omit) PipelineExecutorTestPeer::OmitWait(*executor, point);
    ToyStage module(executor->schedule().shape, self.rank, executor->buffers());
    absl::Status status = executor->Run(module);
    status.Update(self.stream->Synchronize());
    EXPECT_TRUE(omit || status.ok()) << status;
    // A call or a stream may fail because of the race; what others wait for in vain ends.
    if (omit) grid->Abort(absl::CancelledError("over")).IgnoreError();
    self.AwaitOthers();
    executor.reset();
    self.stream->Reset().IgnoreError();
    self.AwaitOthers();
  });
  return checker.reports().size();
}

TEST(ExecutorWaitsTest, AnOmittedWaitIsReported) {
  using enum internal::PipelineWait;
  for (const internal::PipelineWait point : {kReceived, kComputed, kSent, kRead}) {
    EXPECT_EQ(Races(point, false), 0u);
    EXPECT_GT(Races(point, true), 0u) << static_cast<int>(point);
  }
}

}  // namespace
}  // namespace brigade::parallel
