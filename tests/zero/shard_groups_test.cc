// Groups of ranks that have a whole state each: what one group, and groups of one, have in common
// with stages that know of no groups; other engines, delays, errors, and what is everybody's.

#include "brigade/zero/shard_groups.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/golden.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::HasSubstr;

// All ranks' trajectories are the same: rank 0's.
Trajectory Trained(const GoldenCase& c, const ZeroOptions& options) {
  Trajectory result;
  OnThreads({.size = c.ranks}, [&](Rank& self) {
    Trajectory trained;
    ASSERT_OK(Train(self, options, InjectionsOf(c), trained));
    self.AwaitOthers();
    if (self.rank == 0) result = trained;
    self.AwaitOthers();
    EXPECT_OK(Compare(trained, result)) << "rank " << self.rank;
  });
  return result;
}

class ParityTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(ParityTest, OneGroupHasTheBitsOfNoGroups) {
  const GoldenCase& c = GetParam();
  for (int stage = 0; stage < kStages; ++stage) {
    const ZeroOptions plain = OptionsOf(c, stage);
    if (!Validate(plain).ok()) continue;
    ZeroOptions grouped = plain;
    grouped.shard_ranks = c.ranks;
    EXPECT_OK(Compare(Trained(c, grouped), Trained(c, plain))) << "stage " << stage;
  }
}

// Also the norm, whose order of sums depends on who checks what.
TEST_P(ParityTest, GroupsOfOneHaveTheBitsOfStage0) {
  const GoldenCase& c = GetParam();
  const Trajectory wanted = Trained(c, OptionsOf(c, 0));
  for (int stage = 0; stage < kStages; ++stage) {
    ZeroOptions grouped = OptionsOf(c, stage);
    grouped.shard_ranks = 1;
    // A group of one adds up by itself, and so its sums are of the boundary in any case.
    grouped.accumulation = Accumulation::kEveryMicroBatch;
    EXPECT_OK(Compare(Trained(c, grouped), wanted)) << "stage " << stage;
  }
}

// With sums at the boundary, and over wires.
std::vector<GoldenCase> CasesOf(std::vector<DType> dtypes) {
  std::vector<GoldenCase> cases;
  for (const DType dtype : dtypes) {
    GoldenCase c = {.ranks = 3, .dtype = dtype};
    cases.push_back(c);
    c.micro_batches = 3;
    c.accumulation = Accumulation::kAtBoundary;
    c.tied_apart = true;
    c.communication_dtype = DType::kFloat16;
    cases.push_back(c);
    // What ranks exchange, or groups do.
    for (const GradientCompression method : kGradientCompressions) {
      c = {.ranks = 3, .dtype = dtype};
      c.gradient_compression = {.method = method, .start_step = 5, .rank = 2, .density = 0.03};
      cases.push_back(c);
    }
    for (const auto kind :
         {optim::OptimizerKind::kOneBitAdam, optim::OptimizerKind::kZeroOneAdam}) {
      c = {.ranks = 3, .dtype = dtype, .optimizer = kind, .micro_batches = 3};
      c.freeze_step = 9;
      cases.push_back(c);
    }
  }
  return cases;
}

const auto name_of = [](const auto& info) { return ToString(info.param); };
INSTANTIATE_TEST_SUITE_P(Daily, ParityTest, ::testing::ValuesIn(CasesOf({DType::kBFloat16})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Soak, ParityTest,
                         ::testing::ValuesIn(CasesOf({DType::kFloat16, DType::kFloat32})), name_of);

// In between, the order of sums shows, so that these tests compare what differs.
TEST(ShardGroupsTest, TwoGroupsOfTwoDifferFromBoth) {
  const GoldenCase c = {.ranks = 4, .dtype = DType::kBFloat16};
  ZeroOptions grouped = OptionsOf(c, 2);
  const Trajectory plain = Trained(c, grouped);
  grouped.shard_ranks = 2;
  EXPECT_THAT(Compare(Trained(c, grouped), plain), StatusIs(absl::StatusCode::kInternal));
}

absl::Status TrainInGroups(Rank& self, const GoldenCase& c, const Trajectory& wanted) {
  for (int stage = 0; stage < kStages; ++stage) {
    Trajectory trained;
    BRIGADE_RETURN_IF_ERROR(Train(self, OptionsOf(c, stage), InjectionsOf(c), trained));
    const absl::Status same = Compare(trained, wanted);
    if (same.ok()) continue;
    return absl::InternalError(absl::StrCat("stage ", stage, ": ", same.message()));
  }
  return absl::OkStatus();
}

GoldenCase OnEngines(int micro_batches) {
  GoldenCase c = {.ranks = 4, .dtype = DType::kBFloat16, .micro_batches = micro_batches};
  c.bucket_elements = 100'000;
  c.shard_ranks = 2;
  return c;
}

TEST(ShardGroupsTest, ProcessesHaveTheSpecificationsBits) {
  using collectives::testing::Arrays;
  using collectives::testing::Fault;
  const GoldenCase c = OnEngines(2);
  const Trajectory wanted = Specified(c);
  collectives::testing::ExpectAllOk(collectives::testing::OnProcesses(
      c.ranks, collectives::testing::kNever,
      [&](Rank& self, Arrays&, Fault&) { return TrainInGroups(self, c, wanted); }));
}

class ShardGroupsNcclTest : public collectives::NcclTest {};

TEST_F(ShardGroupsNcclTest, NcclHasTheSpecificationsBits) {
  const GoldenCase c = OnEngines(1);
  const Trajectory wanted = Specified(c);
  const collectives::RanksOptions options = {.size = c.ranks};
  collectives::OnRanks(options, collectives::NcclEngines(options), [&](Rank& self) {
    EXPECT_OK(TrainInGroups(self, c, wanted));
    self.AwaitOthers();
  });
}

TEST(ShardGroupsTest, DelaysChangeNoBit) {
  const std::vector<Home> homes = Homes();
  std::vector<std::vector<float>> wanted;
  device::RaceChecker checker;
  for (uint64_t seed = 0; seed < homes.size(); ++seed) {
    ZeroOptions options;
    homes[seed].Set(options);
    options.dtype = DType::kFloat16;
    options.bucket_elements = 1000;
    options.shard_ranks = 2;
    SCOPED_TRACE(ToString(homes[seed]));
    const device::RandomDelay delay = {.seed = seed, .max_delay_us = 100};
    OnThreads({.size = 4, .random_delay = delay, .race_checker = &checker}, [&](Rank& self) {
      auto zero = CreateZero(ToyModel(), options, self);
      ASSERT_OK(zero);
      ASSERT_OK(InitializeToy(**zero));
      ToyTrainer trainer(**zero, self);
      for (int step = 0; step < 4; ++step) ASSERT_OK(trainer.Step());
      ASSERT_OK(self.stream->Synchronize());
      auto exported = Exported(**zero);
      ASSERT_OK(exported);
      if (self.rank == 0 && seed == 0) wanted = *exported;
      self.AwaitOthers();
      EXPECT_EQ(*exported, wanted);
    });
  }
  EXPECT_TRUE(checker.reports().empty());
}

// What the first rank of all writes is everybody's, whatever the others would write.
TEST(ShardGroupsTest, TheFirstGroupsFirstRankGivesTheParameters) {
  OnThreads({.size = 6}, [](Rank& self) {
    ZeroOptions options;
    options.stage = 3;
    options.shard_ranks = 2;
    auto zero = CreateZero(ToyModel(), options, self).value();
    EXPECT_EQ(zero->shard_group(), self.rank / 2);
    EXPECT_EQ(zero->rank(), self.rank % 2);
    int written = 0;
    ASSERT_OK(zero->InitializeParameters([&](int parameter, absl::Span<float> values) {
      ++written;
      for (float& value : values) value = static_cast<float>(parameter + 1 + 100 * self.rank);
      return absl::OkStatus();
    }));
    EXPECT_EQ(written > 0, self.rank == 0);
    const auto exported = Exported(*zero).value();
    for (size_t p = 0; p < exported.size(); ++p) {
      for (const float value : exported[p]) EXPECT_EQ(value, static_cast<float>(p + 1));
    }
  });
}

TEST(ShardGroupsTest, AnErrorOfTheFirstRankIsEverybodys) {
  OnThreads({.size = 6}, [](Rank& self) {
    ZeroOptions options;
    options.shard_ranks = 2;
    auto zero = CreateZero(ToyModel(), options, self).value();
    EXPECT_THAT(zero->InitializeParameters([](int parameter, absl::Span<float>) {
      return parameter == 2 ? absl::DataLossError("no such bytes") : absl::OkStatus();
    }),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no such bytes")));
    // And it can be done again.
    EXPECT_OK(InitializeToy(*zero));
  });
}

TEST(ShardGroupsTest, AnErrorOfALastRankWhileLoadingIsEverybodys) {
  OnThreads({.size = 4}, [](Rank& self) {
    ZeroOptions options;
    options.stage = 2;
    options.shard_ranks = 2;
    auto zero = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    CapturedState state = Capture(*zero, self).value();
    EXPECT_THAT(zero->LoadState(state.step,
                                [&](int bucket, int, ElementRange, void*) {
                                  return self.rank == 3 && bucket == 1
                                             ? absl::DataLossError("no such bytes")
                                             : absl::OkStatus();
                                }),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no such bytes")));
    EXPECT_OK(LoadCaptured(*zero, state));
    if (self.rank == 2) ++state.step.iteration;
    EXPECT_THAT(LoadCaptured(*zero, state),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("states disagree")));
  });
}

// Weights that a pass reads, of parameter 3, "h.0.b".
std::vector<float> Read(ZeroOptimizer& zero, Rank& self, Pass pass) {
  const int unit = zero.plan().parameter(3).unit;
  const int64_t size = zero.plan().parameter(3).spec.size;
  std::vector<float> values(static_cast<size_t>(size));
  UnitScope scope(zero, unit, pass);
  const void* const weights = scope.weights<float>(3);
  EXPECT_OK(scope.status());
  EXPECT_OK(self.stream->Copy(values.data(), weights, size * sizeof(float)));
  EXPECT_OK(self.stream->Synchronize());
  return values;
}

// Where a backward gather comes first behind a change, second slices are those of before: they are
// not used.
TEST(SecondSlicesTest, AreNeverOfWeightsThatHaveChanged) {
  for (const Home& home : Homes()) {
    if (home.stage != 3) continue;
    SCOPED_TRACE(ToString(home));
    OnThreads({.size = 4}, [&](Rank& self) {
      ZeroOptions options;
      home.Set(options);
      options.dtype = DType::kFloat32;
      options.hpz_ranks = 2;
      auto zero = CreateZero(ToyModel(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      const std::vector<float> first = Read(*zero, self, Pass::kForward);
      EXPECT_EQ(Read(*zero, self, Pass::kBackward), first);
      const CapturedState initial = Capture(*zero, self).value();
      // A step: what backward reads next is what it has left.
      ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      const std::vector<float> stepped = Read(*zero, self, Pass::kBackward);
      EXPECT_NE(stepped, first);
      EXPECT_EQ(stepped, Exported(*zero).value()[3]);
      // An evaluation, and a load behind it.
      EXPECT_EQ(Read(*zero, self, Pass::kForward), stepped);
      ASSERT_OK(LoadCaptured(*zero, initial));
      EXPECT_EQ(Read(*zero, self, Pass::kBackward), first);
      // A step that is given up, whose forward pass was made.
      ASSERT_OK(trainer.Forward());
      ASSERT_OK(zero->CancelStep());
      ASSERT_OK(InitializeToy(*zero));
      EXPECT_EQ(Read(*zero, self, Pass::kBackward), first);
      self.AwaitOthers();
    });
  }
}

TEST(SecondSlicesTest, RanksThatDoNotFitAreAnErrorOnAll) {
  OnThreads({.size = 4}, [](Rank& self) {
    collectives::Communicator& all = *self.communicator;
    constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
    EXPECT_THAT(ShardGroups::Create(all, 2, 4),
                StatusIs(kInvalid,
                         "ZeRO: groups of hpz_ranks 4 do not divide 2 ranks that share a "
                         "state"));
    const auto create = [&](int stage, int hpz_ranks, collectives::Communicator* near) {
      ZeroOptions options;
      options.stage = stage;
      options.hpz_ranks = hpz_ranks;
      return ZeroOptimizer::Create(ToyModel(), options, all, *self.context, *self.stream,
                                   {.near = near})
          .status();
    };
    auto groups = ShardGroups::Create(all, 4, 2).value();
    EXPECT_THAT(create(2, 2, groups.near.get()),
                StatusIs(kInvalid,
                         "ZeRO: hpz_ranks is 2, but stage 2 keeps all parameters; stage 3 "
                         "does not"));
    EXPECT_THAT(create(3, 2, nullptr),
                StatusIs(kInvalid, "ZeRO: hpz_ranks is 2, but OuterGroups::near has 0 ranks"));
    EXPECT_THAT(create(3, 0, groups.near.get()),
                StatusIs(kInvalid, "ZeRO: hpz_ranks is 0, but OuterGroups::near has 2 ranks"));
    EXPECT_THAT(create(3, -1, groups.near.get()), StatusIs(kInvalid, "ZeRO: hpz_ranks is -1"));
    // Ranks 0 and 2, 1 and 3.
    auto apart = all.Split(self.rank % 2, 0).value();
    EXPECT_THAT(create(3, 2, apart.get()), StatusIs(kInvalid, HasSubstr("ranks from 1 on")));
    // One rank knows of none.
    const bool knows = self.rank != 1;
    EXPECT_THAT(create(3, knows ? 2 : 0, knows ? groups.near.get() : nullptr),
                StatusIs(kInvalid, HasSubstr("rank 1 has hpz_ranks 0")));
    EXPECT_OK(create(3, 2, groups.near.get()));
    const auto create_nodes = [&](int node_ranks, const OuterGroups& outer) {
      ZeroOptions options;
      options.quantized_gradients = kernels::QuantFormat::kInt4;
      options.node_ranks = node_ranks;
      return ZeroOptimizer::Create(ToyModel(), options, *self.communicator, *self.context,
                                   *self.stream, outer)
          .status();
    };
    EXPECT_THAT(create_nodes(3, {}),
                StatusIs(kInvalid,
                         "ZeRO: node_ranks is 3, which does not divide the 4 ranks that share a "
                         "state"));
    EXPECT_THAT(create_nodes(1, {.node = groups.near.get()}),
                StatusIs(kInvalid, "ZeRO: node_ranks is 1, but OuterGroups::node has 2 ranks"));
    EXPECT_THAT(
        create_nodes(2, {.node = groups.near.get()}),
        StatusIs(kInvalid, "ZeRO: there is a communicator inside nodes, but none between them"));
    EXPECT_THAT(create_nodes(-2, {}), StatusIs(kInvalid, "ZeRO: node_ranks is -2"));
    EXPECT_THAT(create_nodes(2, {}),
                StatusIs(kInvalid, "ZeRO: node_ranks is 2, but OuterGroups::node has 0 ranks"));
    EXPECT_OK(create_nodes(4, {}));
  });
}

TEST(ShardGroupsTest, RanksThatDoNotDivideAreAnErrorOnAll) {
  OnThreads({.size = 4}, [](Rank& self) {
    EXPECT_THAT(ShardGroups::Create(*self.communicator, 3),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "ZeRO: groups of shard_ranks 3 do not divide 4 ranks that have the same "
                         "weights"));
    EXPECT_THAT(ShardGroups::Create(*self.communicator, -1),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shard_ranks -1")));
    EXPECT_THAT(ShardGroups::Create(*self.communicator, self.rank == 3 ? 1 : 2),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "ranks disagree: rank 0 has shard_ranks 2; rank 3 has shard_ranks 1"));
  });
}

TEST(ShardGroupsTest, GroupsThatDoNotFitTheOptionsAreAnErrorOnAll) {
  OnThreads({.size = 4}, [](Rank& self) {
    auto groups = ShardGroups::Create(*self.communicator, 2).value();
    const auto create = [&](int shard_ranks, const OuterGroups& outer,
                            const ModelSpec& model = ToyModel()) {
      ZeroOptions options;
      options.shard_ranks = shard_ranks;
      return ZeroOptimizer::Create(model, options, *groups.shards, *self.context, *self.stream,
                                   outer)
          .status();
    };
    collectives::Communicator* const world = self.communicator.get();
    collectives::Communicator* const between = groups.between.get();
    constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
    EXPECT_THAT(create(4, {.world = world, .between = between}),
                StatusIs(kInvalid,
                         "ZeRO: shard_ranks is 4, but the group that shares a state has "
                         "2 ranks"));
    EXPECT_THAT(create(0, {.world = world, .between = between}),
                StatusIs(kInvalid, HasSubstr("OuterGroups::between has 2 ranks")));
    EXPECT_THAT(create(2, {.world = world}),
                StatusIs(kInvalid,
                         "ZeRO: model_ranks is 1, but groups of 2 ranks are parts of a "
                         "world of 4"));
    EXPECT_THAT(create(2, {.between = between}),
                StatusIs(kInvalid,
                         "ZeRO: model_ranks is 1, but 2 times groups of 2 ranks are "
                         "parts of a world of 2"));
    EXPECT_THAT(create(-1, {.world = world, .between = between}),
                StatusIs(kInvalid, "ZeRO: shard_ranks is -1"));
    // A group with another model.
    ModelSpec other = ToyModel();
    if (self.rank >= 2) other[0].parameters[0].size = 701;
    EXPECT_THAT(create(2, {.world = world, .between = between}, other),
                StatusIs(kInvalid, HasSubstr("wte [701]")));
    // Ranks between groups that do not have the same place.
    auto crossed = world->Split(self.rank == 0 || self.rank == 3 ? 0 : 1, 0).value();
    EXPECT_THAT(create(2, {.world = world, .between = crossed.get()}),
                StatusIs(kInvalid, HasSubstr("place 1 of 2 in its group")));
  });
}

}  // namespace
}  // namespace brigade::zero
