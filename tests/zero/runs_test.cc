// Chunks, whose micro-batches take turns, and runs, for which stage 3 gathers weights once.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/traffic.h"
#include "brigade/zero/zero_optimizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

// Units of different sizes, two to a chunk; of two ranks each sends as many bytes as it has
// elements.
ModelSpec FourUnits() {
  return {
      {"a", {{"a.w", 256}}}, {"b", {{"b.w", 512}}}, {"c", {{"c.w", 1024}}}, {"d", {{"d.w", 2048}}}};
}
constexpr int kFirstChunk = 256 + 512, kSecondChunk = 1024 + 2048;

ZeroOptions InRuns(int stage, int micro_batches = 1) {
  return {.stage = stage, .micro_batches = micro_batches, .chunks = {0, 2}, .runs = {0, 1, 0}};
}

// The gradient of a unit's one parameter, of which the micro-batch can be told, and the report.
absl::Status WriteGradient(ZeroOptimizer& zero, Rank& self, int unit, int micro_batch) {
  BRIGADE_ASSIGN_OR_RETURN(const GradientTarget target, zero.Gradient(unit, unit));
  const int64_t size = zero.plan().parameter(unit).spec.size;
  BRIGADE_RETURN_IF_ERROR(self.stream->Enqueue(
      {"gradient", {device::Writes(target.data, 2 * size)}},
      [data = target.data, size, rank = self.rank, unit, micro_batch](device::ThreadPool&) {
        for (int64_t i = 0; i < size; ++i) {
          const auto odd = static_cast<float>((i * 7 + unit * 3 + rank) % 127);
          Store(data, DType::kBFloat16, i, micro_batch == 0 ? odd : odd / 1024);
        }
        return absl::OkStatus();
      }));
  return zero.GradientsReady(unit);
}

// The units' gradients, in this order of {unit, micro-batch}; a chunk finishes a micro-batch with
// its first unit.
using Order = std::vector<std::pair<int, int>>;
std::vector<std::vector<float>> TrainInOrder(int stage, int ranks, const Order& order) {
  std::vector<std::vector<float>> trained;
  OnThreads({.size = ranks}, [&](Rank& self) {
    ZeroOptions options = {.stage = stage, .micro_batches = 2, .live_units = 1, .chunks = {0, 2}};
    auto zero = CreateZero(FourUnits(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    for (int step = 0; step < 2; ++step) {
      for (const auto& [unit, micro_batch] : order) {
        ASSERT_OK(WriteGradient(*zero, self, unit, micro_batch)) << unit << " " << micro_batch;
        if (unit % 2 == 1) continue;
        ASSERT_OK(zero->FinishBackward(unit / 2));
      }
      ASSERT_OK(zero->Step());
    }
    const auto exported = Exported(*zero).value();
    if (self.rank == 0) trained = exported;
  });
  return trained;
}

TEST(ChunksTest, MicroBatchesOfChunksInTurnGiveTheBitsOfOneAfterTheOther) {
  const Order one_by_one = {{3, 0}, {2, 0}, {1, 0}, {0, 0}, {3, 1}, {2, 1}, {1, 1}, {0, 1}};
  // Chunk 1 is done before chunk 0 begins; units of both in turn, of the same micro-batch or not.
  const Order orders[] = {{{3, 0}, {2, 0}, {3, 1}, {2, 1}, {1, 0}, {0, 0}, {1, 1}, {0, 1}},
                          {{1, 0}, {0, 0}, {1, 1}, {3, 0}, {0, 1}, {2, 0}, {3, 1}, {2, 1}},
                          {{3, 0}, {1, 0}, {2, 0}, {0, 0}, {3, 1}, {1, 1}, {2, 1}, {0, 1}}};
  for (int stage = 0; stage < kStages; ++stage) {
    for (const int ranks : {1, 2}) {
      const auto wanted = TrainInOrder(stage, ranks, one_by_one);
      ASSERT_EQ(wanted.size(), 4u);
      for (const Order& order : orders) EXPECT_EQ(TrainInOrder(stage, ranks, order), wanted);
    }
  }
}

TEST(ChunksTest, CallsOutOfTurnNameTheChunk) {
  OnThreads({.size = 1}, [](Rank& self) {
    auto zero = CreateZero(FourUnits(), {.micro_batches = 1, .chunks = {0, 2}}, self).value();
    EXPECT_THAT(zero->FinishBackward(2),
                StatusIs(kInvalid, HasSubstr("FinishBackward: chunk 2 of 2")));
    EXPECT_THAT(zero->FinishBackward(-1), StatusIs(kInvalid, HasSubstr("chunk -1 of 2")));
    ASSERT_OK(zero->Gradient(1, 1));
    // Another chunk's.
    ASSERT_OK(zero->FinishBackward(1));
    EXPECT_THAT(zero->FinishBackward(0),
                StatusIs(kPrecondition, HasSubstr("FinishBackward of chunk 0: unit \"b\" has "
                                                  "gradients that were not reported ready")));
    EXPECT_THAT(zero->FinishBackward(1),
                StatusIs(kPrecondition, HasSubstr("FinishBackward of chunk 1: all 1 micro-batches "
                                                  "are done; Step comes first")));
    EXPECT_THAT(zero->Gradient(2, 2).status(),
                StatusIs(kPrecondition, HasSubstr("all micro-batches are done")));
    EXPECT_THAT(zero->Step(),
                StatusIs(kPrecondition, HasSubstr("Step of chunk 0: 0 of 1 micro-batches have "
                                                  "finished backward, 0 units are acquired")));
    ASSERT_OK(zero->GradientsReady(1));
    ASSERT_OK(zero->FinishBackward(0));
    ASSERT_OK(zero->Step());
  });
}

TEST(RunsTest, OptionsThatAreNoneAreRefused) {
  const auto refused = [](std::vector<int> chunks, std::vector<int> runs, const std::string& why) {
    EXPECT_THAT(Validate({.chunks = std::move(chunks), .runs = std::move(runs)}),
                StatusIs(kInvalid, HasSubstr(why)));
  };
  refused({1}, {}, "chunk 0 begins with unit 1, not with unit 0");
  refused({0, 2, 2}, {}, "chunk 2 begins with unit 2, the one before it with unit 2");
  refused({0, 2}, {0, 2}, "run 1 is of chunk 2 of 2");
  refused({0, 2}, {-1}, "run 0 is of chunk -1 of 2");
  refused({}, {1}, "run 0 is of chunk 1 of 1");
  refused({0, 2}, {0, 1, 1}, "runs 1 and 2 are both of chunk 1");
  refused({0, 2}, {1}, "chunk 0 has no run");
  EXPECT_THAT(Validate({.backward_units = {1, 0}, .chunks = {0, 1}}),
              StatusIs(kInvalid, HasSubstr("backward_units has 2 uses, but there are 2 chunks and "
                                           "0 runs")));
  EXPECT_THAT(Validate({.backward_units = {1, 0}, .runs = {0}}),
              StatusIs(kInvalid, HasSubstr("there are 1 chunks and 1 runs")));
  EXPECT_OK(Validate({.runs = {0}}));
  OnThreads({.size = 2}, [](Rank& self) {
    EXPECT_THAT(CreateZero(FourUnits(), {.chunks = {0, 4}}, self),
                StatusIs(kInvalid, HasSubstr("chunk 1 begins with unit 4, but the model has 4")));
    EXPECT_THAT(CreateZero(ToyModel(), {.chunks = {0, 2}}, self),
                StatusIs(kInvalid, HasSubstr("parameter \"wte\" is tied between units "
                                             "\"embedding\" of chunk 0 and \"head\" of chunk 1, "
                                             "which needs tied_apart")));
    EXPECT_OK(CreateZero(ToyModel(), {.chunks = {0, 2}, .tied_apart = true}, self));
    EXPECT_THAT(CreateZero(FourUnits(), {.chunks = {0, 1 + self.rank}}, self),
                StatusIs(kInvalid, HasSubstr("rank 0 has chunks 0 1; rank 1 has chunks 0 2")));
    EXPECT_THAT(CreateZero(FourUnits(), {.tied_apart = self.rank == 1}, self),
                StatusIs(kInvalid, HasSubstr("rank 0 has tied_apart 0; rank 1 has tied_apart 1")));
    ZeroOptions options = InRuns(3);
    if (self.rank == 1) options.runs = {0, 1};
    EXPECT_THAT(CreateZero(FourUnits(), options, self),
                StatusIs(kInvalid, HasSubstr("rank 0 has runs 0 1 0; rank 1 has runs 0 1")));
  });
}

// The bytes that a rank has sent for weights since it was last asked.
class SentForWeights {
 public:
  explicit SentForWeights(const ZeroOptimizer& zero) : zero_(zero) { (*this)(); }
  int64_t operator()() {
    const int64_t now = zero_.traffic().parameters;
    return now - std::exchange(before_, now);
  }

 private:
  const ZeroOptimizer& zero_;
  int64_t before_ = 0;
};

absl::Status Use(ZeroOptimizer& zero, int unit, Pass pass = Pass::kForward) {
  BRIGADE_RETURN_IF_ERROR(zero.Acquire(unit, pass));
  return zero.Release(unit);
}

TEST(RunsTest, ARunsWeightsAreGatheredOnceAndThoseOfTheNextRunAhead) {
  OnThreads({.size = 2}, [](Rank& self) {
    const ZeroOptions options = InRuns(3, 2);
    auto zero = CreateZero(FourUnits(), options, self).value();
    SentForWeights sent(*zero);
    for (int step = 0; step < 3; ++step) {
      ASSERT_OK(zero->BeginRun(0));
      EXPECT_EQ(sent(), kFirstChunk + kSecondChunk);
      for (const int unit : {0, 1, 0, 1, 1, 0}) ASSERT_OK(Use(*zero, unit));
      ASSERT_OK(zero->EndRun());
      EXPECT_EQ(sent(), 0);
      // Its own are there; those of the run after it are gathered again.
      ASSERT_OK(zero->BeginRun(1));
      EXPECT_EQ(sent(), kFirstChunk);
      for (const int unit : {2, 3}) ASSERT_OK(Use(*zero, unit, Pass::kBackward));
      ASSERT_OK(zero->FinishBackward(1));
      ASSERT_OK(zero->FinishBackward(1));
      ASSERT_OK(zero->EndRun());
      ASSERT_OK(zero->BeginRun(0));
      for (const int unit : {1, 0}) ASSERT_OK(Use(*zero, unit, Pass::kBackward));
      ASSERT_OK(zero->FinishBackward(0));
      ASSERT_OK(zero->FinishBackward(0));
      ASSERT_OK(zero->EndRun());
      ASSERT_OK(zero->Step());
      EXPECT_EQ(sent(), 0);
    }
    EXPECT_EQ(TrafficOfStep(zero->plan(), options, *self.communicator)->parameters,
              2 * kFirstChunk + kSecondChunk);
    self.AwaitOthers();
  });
}

// It would be that of old weights.
TEST(RunsTest, NothingIsGatheredAheadAcrossTheUpdate) {
  OnThreads({.size = 2}, [](Rank& self) {
    ZeroOptions options = InRuns(3);
    options.runs = {0, 1};
    auto zero = CreateZero(FourUnits(), options, self).value();
    SentForWeights sent(*zero);
    for (int step = 0; step < 2; ++step) {
      ASSERT_OK(zero->BeginRun(0));
      EXPECT_EQ(sent(), kFirstChunk + kSecondChunk);
      ASSERT_OK(zero->EndRun());
      ASSERT_OK(zero->BeginRun(1));
      ASSERT_OK(zero->EndRun());
      for (const int chunk : {0, 1}) ASSERT_OK(zero->FinishBackward(chunk));
      ASSERT_OK(zero->Step());
      EXPECT_EQ(sent(), 0);
    }
    self.AwaitOthers();
  });
}

// An evaluation that ends in the middle leaves units that it has gathered ahead, here three of the
// four for which there is memory.
TEST(RunsTest, ARunTakesTheMemoryOfWhatWasGatheredAheadAndOfNothingElse) {
  ModelSpec model;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) model.push_back({name, {{name, 256}}});
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero =
        CreateZero(model, {.stage = 3, .live_units = 4, .chunks = {0, 2, 4}, .runs = {2, 1, 0}},
                   self)
            .value();
    SentForWeights sent(*zero);
    ASSERT_OK(Use(*zero, 0));
    EXPECT_EQ(sent(), 4 * 256);
    ASSERT_OK(zero->BeginRun(2));
    EXPECT_EQ(sent(), 2 * 256);
    for (const int unit : {5, 4, 4, 5}) ASSERT_OK(Use(*zero, unit));
    ASSERT_OK(zero->EndRun());
    EXPECT_EQ(sent(), 0);
    ASSERT_OK(zero->CancelStep());
  });
}

// Of whatever stage; and an evaluation between two steps.
TEST(RunsTest, MemoryAndTrafficAreThoseOfTheModel) {
  for (const Home& home : Homes()) {
    for (const int64_t persistence_threshold : {0, 600}) {
      SCOPED_TRACE(ToString(home));
      if (home.stage < 3 && persistence_threshold > 0) continue;
      OnThreads({.size = 2}, [&](Rank& self) {
        ZeroOptions options = InRuns(home.stage, 2);
        options.persistence_threshold = persistence_threshold;
        home.Set(options);
        const device::MemoryStats& stats = self.context->memory_stats();
        auto zero = CreateZero(FourUnits(), options, self).value();
        ASSERT_OK(InitializeToy(*zero));
        self.context->memory_stats().ResetPeaks();
        Traffic before;
        Movement moved_before;
        for (int step = 0; step < 3; ++step) {
          for (size_t run = 0; run < options.runs.size(); ++run) {
            const int chunk = options.runs[run];
            ASSERT_OK(zero->BeginRun(chunk));
            // In the last run of each chunk.
            for (int micro = 0; micro < 2 && run > 0; ++micro) {
              for (const int unit : {2 * chunk + 1, 2 * chunk}) {
                ASSERT_OK(Use(*zero, unit, Pass::kBackward));
                ASSERT_OK(WriteGradient(*zero, self, unit, micro));
              }
              ASSERT_OK(zero->FinishBackward(chunk));
            }
            ASSERT_OK(zero->EndRun());
          }
          ASSERT_OK(zero->Step());
          if (step == 0) {
            for (int unit = 0; unit < 4; ++unit) ASSERT_OK(Use(*zero, unit));
            before = zero->traffic();
            moved_before = zero->movement();
          }
        }
        ASSERT_OK(zero->CancelStep());
        const Traffic of_step = TrafficOfStep(zero->plan(), options, *self.communicator).value();
        // A persistent unit was gathered again for the evaluation, instead of in the step after it.
        int64_t persistent = 0;
        for (const Bucket& bucket : zero->plan().buckets()) {
          if (bucket.size <= persistence_threshold) persistent += bucket.size;
        }
        EXPECT_EQ(zero->traffic().parameters - before.parameters,
                  2 * of_step.parameters - persistent);
        EXPECT_EQ(zero->traffic().gradients - before.gradients, 2 * of_step.gradients);
        if (persistent == 0) {
          const Movement moved = MovementOfStep(zero->plan(), options);
          EXPECT_EQ(zero->movement().from_host - moved_before.from_host, 2 * moved.from_host);
          EXPECT_EQ(zero->movement().to_host - moved_before.to_host, 2 * moved.to_host);
          EXPECT_EQ(zero->movement().file_read - moved_before.file_read, 2 * moved.file_read);
        }
        const auto terms = MemoryOf(zero->plan(), options, *self.communicator).value();
        EXPECT_EQ(stats.peak_bytes(), Total(terms, device::Tier::kDevice));
        EXPECT_EQ(stats.current_bytes(), stats.peak_bytes());
        self.AwaitOthers();
      });
    }
  }
}

TEST(RunsTest, CallsOutOfTurnNameBothChunks) {
  for (const int stage : {1, 3}) {
    OnThreads({.size = 1}, [&](Rank& self) {
      auto zero = CreateZero(FourUnits(), InRuns(stage), self).value();
      const auto refused = [&](const absl::Status& status, const std::string& why) {
        EXPECT_THAT(status, StatusIs(kPrecondition, HasSubstr(absl::StrCat("stage ", stage, why))));
      };
      refused(zero->EndRun(), ", EndRun: no run has begun");
      refused(zero->BeginRun(1), ", BeginRun of chunk 1: run 0 is of chunk 0, not 1");
      ASSERT_OK(zero->Acquire(2, Pass::kForward));
      refused(zero->BeginRun(0), ", BeginRun of chunk 0: 1 units are acquired");
      ASSERT_OK(zero->Release(2));
      ASSERT_OK(zero->BeginRun(0));
      refused(zero->BeginRun(0), ", BeginRun of chunk 0: run 0, of chunk 0, has begun");
      refused(zero->Acquire(2, Pass::kForward),
              ", Acquire of unit \"c\": it is in chunk 1, and a run of chunk 0 has begun");
      EXPECT_THAT(zero->Weights(0),
                  StatusIs(kPrecondition, HasSubstr("no unit that uses it is acquired")));
      ASSERT_OK(zero->Acquire(0, Pass::kForward));
      EXPECT_OK(zero->Weights(0));
      refused(zero->EndRun(), ", EndRun: 1 units are acquired");
      ASSERT_OK(zero->Release(0));
      refused(Exported(*zero).status(), ", ExportParameters: in the middle of a step");
      ASSERT_OK(zero->EndRun());
      refused(Exported(*zero).status(), ", ExportParameters: in the middle of a step");
      ASSERT_OK(zero->FinishBackward(0));
      ASSERT_OK(zero->FinishBackward(1));
      refused(zero->Step(), ", Step: 1 of 3 runs are made");
      // From the begin again; in a run, too.
      ASSERT_OK(zero->CancelStep());
      ASSERT_OK(zero->BeginRun(0));
      ASSERT_OK(zero->CancelStep());
      for (const int chunk : {0, 1, 0}) {
        ASSERT_OK(zero->BeginRun(chunk));
        ASSERT_OK(zero->EndRun());
      }
      refused(zero->BeginRun(1), ", BeginRun of chunk 1: all 3 runs are made");
      ASSERT_OK(zero->FinishBackward(0));
      ASSERT_OK(zero->FinishBackward(1));
      ASSERT_OK(zero->Step());
      ASSERT_OK(zero->BeginRun(0));
      ASSERT_OK(zero->CancelStep());
      auto without = CreateZero(FourUnits(), {.stage = stage}, self).value();
      refused(without->BeginRun(0), ", BeginRun of chunk 0: there are no runs (ZeroOptions::runs)");
    });
  }
}

}  // namespace
}  // namespace brigade::zero
