#include "brigade/train/times/time_split.h"

#include <set>
#include <string>
#include <vector>

#include "brigade/collectives/collective.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/train/times/traced.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using device::TracedOperation;
using ::testing::ElementsAre;

TracedOperation Wait(absl::string_view event, int64_t begin, int64_t end) {
  return {TracedOperation::Kind::kWait, event, begin * kSecond, end * kSecond};
}

// gemm, other compute, optimizer, exposed communication, idle; then hidden communication.
std::vector<double> Parts(const Seconds& s) {
  return {s.gemm, s.other_compute,       s.optimizer, s.exposed_communication,
          s.idle, s.hidden_communication};
}

TEST(TimeSplitTest, KnowsOperationsByTheirNames) {
  EXPECT_EQ(ActivityOf(Work("gemm", 0, 1)), Activity::kGemm);
  EXPECT_EQ(ActivityOf(Work("gemm", 0, 1)), Activity::kGemm);
  EXPECT_EQ(ActivityOf(Work("attention_backward", 0, 1)), Activity::kGemm);
  EXPECT_EQ(ActivityOf(Work("layer_norm", 0, 1)), Activity::kOtherCompute);
  EXPECT_EQ(ActivityOf(Work("collective", 0, 1)), Activity::kOtherCompute);
  EXPECT_EQ(ActivityOf(Wait("collective", 0, 1)), Activity::kCommunication);
  EXPECT_EQ(ActivityOf(Wait("adam", 0, 1)), Activity::kIdle);
  EXPECT_EQ(ActivityOf(Wait("gemm", 0, 1)), Activity::kIdle);
  for (const char* const name : {"grad_check", "step_control", "adam", "sgd", "lion"}) {
    EXPECT_EQ(ActivityOf(Work(name, 0, 1)), Activity::kOptimizer) << name;
  }
  using collectives::CollectiveKind;
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
        CollectiveKind::kAllToAll, CollectiveKind::kShift, CollectiveKind::kBroadcast,
        CollectiveKind::kSend, CollectiveKind::kBarrier}) {
    EXPECT_EQ(ActivityOf(Work(Name(kind), 0, 1)), Activity::kCommunication) << Name(kind);
  }
}

TEST(TimeSplitTest, GivesEachMomentToOnePart) {
  TimeSplit split(2, 10 * kSecond);
  const std::vector<TracedOperation> compute = {Work("gemm", 11, 15), Work("gelu", 15, 18),
                                                Wait("step decided", 18, 30)};
  const std::vector<TracedOperation> communication = {
      Wait("written", 10, 14), Work("reduce_scatter", 14, 20), Work("grad_check", 20, 21),
      Work("all_gather", 21, 23), Work("adam", 24, 29)};
  split.Add(0, compute);
  split.Add(1, communication);
  // 10 idle, 11 gemm (from 14 on it hides), 15 gelu (hides), 18 reduce_scatter alone, 20
  // grad_check, 21 all_gather, 23 idle, 24 adam, 29 idle until 32.
  const Seconds seconds = split.Finish(32 * kSecond);
  EXPECT_THAT(Parts(seconds), ElementsAre(4.0, 3.0, 6.0, 4.0, 5.0, 4.0));
  EXPECT_EQ(seconds.wall(), 22.0);
}

TEST(TimeSplitTest, CountsWaitsForOtherRanksAsCommunication) {
  TimeSplit split(2, 0);
  split.Add(0, std::vector<TracedOperation>{Work("gemm", 0, 2), Wait("gathered", 2, 9)});
  split.Add(1, std::vector<TracedOperation>{Wait("collective", 1, 5), Work("reduce", 5, 6),
                                            Wait("backward finished", 6, 9)});
  EXPECT_THAT(Parts(split.Finish(9 * kSecond)), ElementsAre(2.0, 0.0, 0.0, 4.0, 3.0, 1.0));
}

TEST(TimeSplitTest, SplitsOneStreamThatDoesItAll) {
  TimeSplit split(1, 0);
  split.Add(0, std::vector<TracedOperation>{Work("gemm", 0, 3), Work("all_reduce", 3, 5),
                                            Work("sgd", 5, 6), Work("copy", 7, 8)});
  EXPECT_THAT(Parts(split.Finish(8 * kSecond)), ElementsAre(3.0, 1.0, 1.0, 2.0, 1.0, 0.0));
}

TEST(TimeSplitTest, LeavesOutWhatLiesOutsideOfTheWindow) {
  TimeSplit split(2, 10 * kSecond);
  split.Add(0, std::vector<TracedOperation>{Work("gemm", 2, 8), Work("gemm", 9, 12)});
  split.Add(1, std::vector<TracedOperation>{Work("all_gather", 5, 11)});
  EXPECT_THAT(Parts(split.Finish(13 * kSecond)), ElementsAre(2.0, 0.0, 0.0, 0.0, 1.0, 1.0));
}

TEST(TimeSplitTest, IsTheSameHoweverOperationsAreHandedOver) {
  std::vector<TracedOperation> streams[2];
  for (int64_t i = 0; i < 300; ++i) {
    streams[0].push_back(Work(i % 3 == 0 ? "gemm" : "gelu", 7 * i, 7 * i + 1 + i % 6));
    streams[1].push_back(Work(i % 4 == 0 ? "adam" : "all_gather", 7 * i + i % 4, 7 * i + 5));
  }
  const auto split_in_parts_of = [&](size_t first, size_t second) {
    TimeSplit split(2, 0);
    const size_t part[] = {first, second};
    size_t at[2] = {};
    while (at[0] < 300 || at[1] < 300) {
      for (int s : {0, 1}) {
        const absl::Span<const TracedOperation> left =
            absl::MakeConstSpan(streams[s]).subspan(at[s], part[s]);
        split.Add(s, left);
        at[s] += left.size();
      }
    }
    return Parts(split.Finish(2200 * kSecond));
  };
  const std::vector<double> whole = split_in_parts_of(300, 300);
  EXPECT_EQ(split_in_parts_of(1, 1), whole);
  EXPECT_EQ(split_in_parts_of(1, 300), whole);
  EXPECT_EQ(split_in_parts_of(300, 7), whole);
  EXPECT_EQ(split_in_parts_of(13, 2), whole);
}

// The table against the names that a real step has.
TEST(TimeSplitTest, KnowsTheOperationsOfARealStep) {
  device::Tracer tracer;
  collectives::OnThreads({.size = 2, .tracer = &tracer}, [](collectives::Rank& self) {
    zero::ZeroOptions options;
    options.stage = 2;
    auto zero = zero::ZeroOptimizer::Create(zero::ToyModel(), options, *self.communicator,
                                            *self.context, *self.stream)
                    .value();
    ASSERT_OK(zero->InitializeParameters([](int parameter, absl::Span<float> values) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = zero::InitialWeight(parameter, static_cast<int64_t>(i));
      }
      return absl::OkStatus();
    }));
    zero::ToyTrainer trainer(*zero, self);
    for (int step = 0; step < 3; ++step) ASSERT_OK(trainer.Step());
    ASSERT_OK(self.stream->Synchronize());
  });

  std::set<std::string> optimizer, communication;
  for (const device::TracedStream& stream : tracer.Take()) {
    for (const TracedOperation& operation : stream.operations) {
      if (ActivityOf(operation) == Activity::kOptimizer) optimizer.emplace(operation.name);
      if (ActivityOf(operation) == Activity::kCommunication) communication.emplace(operation.name);
    }
  }
  EXPECT_THAT(optimizer, ElementsAre("adam", "grad_check", "step_control"));
  EXPECT_THAT(communication, ElementsAre("collective", "reduce"));
}

}  // namespace
}  // namespace brigade::train
