// Backward passes that use units again, in an order of their own.

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/collectives/communicator.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/traffic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

ZeroOptions Options(int stage, std::vector<int> backward_units) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = precision::DType::kFloat16;
  options.bucket_elements = 1000;
  options.micro_batches = 2;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 12;
  options.backward_units = std::move(backward_units);
  return options;
}

// Of a training with an overflow.
std::vector<std::vector<float>> Train(const ZeroOptions& options, int ranks) {
  std::vector<std::vector<float>> trained;
  OnThreads({.size = ranks}, [&](Rank& self) {
    auto zero = CreateZero(ToyModel(), options, self);
    ASSERT_OK(zero);
    ASSERT_OK(InitializeToy(**zero));
    ToyTrainer trainer(**zero, self, {{.step = 1}});
    const auto wanted = TrafficOfStep((*zero)->plan(), options, *self.communicator);
    ASSERT_OK(wanted);
    Traffic before = (*zero)->traffic();
    while (trainer.step < 4) {
      ASSERT_OK(trainer.Step());
      // Once persistent units are gathered.
      const Traffic after = (*zero)->traffic();
      if (trainer.step > 1) {
        EXPECT_EQ(after.parameters - before.parameters, wanted->parameters);
      }
      before = after;
    }
    ASSERT_OK(self.stream->Synchronize());
    auto exported = Exported(**zero);
    ASSERT_OK(exported);
    if (self.rank == 0) trained = *std::move(exported);
  });
  return trained;
}

// Of segments of two units; of all of them; some twice; what is used last again at once.
const std::vector<std::vector<int>>& Orders() {
  static const auto* const orders =
      new std::vector<std::vector<int>>{{4, 2, 3, 2, 0, 1, 0},
                                        {4, 0, 1, 2, 3, 2, 1, 0},
                                        {0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2, 0, 1, 0},
                                        {4, 4, 3, 3, 2, 2, 1, 1, 0, 0}};
  return *orders;
}

TEST(BackwardUnitsTest, ATrainingHasTheSameBitsInAnyOrder) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (const int ranks : {1, 3}) {
      const auto plain = Train(Options(stage, {}), ranks);
      ASSERT_FALSE(plain.empty());
      for (const std::vector<int>& order : Orders()) {
        for (const int live_units : {1, 2, 3}) {
          for (const bool overlap : {true, false}) {
            SCOPED_TRACE(absl::StrCat("stage ", stage, ", ", ranks, " ranks, ",
                                      absl::StrJoin(order, " "), ", live ", live_units));
            ZeroOptions options = Options(stage, order);
            options.live_units = live_units;
            options.overlap_comm = overlap;
            if (live_units == 3 && stage == 3) options.persistence_threshold = 100;
            EXPECT_EQ(Train(options, ranks), plain);
          }
        }
      }
    }
  }
}

// In stage 3 each use is a gather; in the others nothing is sent for it.
TEST(BackwardUnitsTest, EachUseIsAGatherInStage3) {
  const ModelSpec model = {{"a", {{"a.w", 512}}}, {"b", {{"b.w", 1024}}}, {"c", {{"c.w", 256}}}};
  OnThreads({.size = 2}, [&](Rank& self) {
    const auto gathered = [&](int stage, std::vector<int> backward_units) {
      const ZeroOptions options = {.stage = stage, .backward_units = std::move(backward_units)};
      const Plan plan =
          Plan::Create(model, {self.size, options.dtype, options.bucket_elements}).value();
      return TrafficOfStep(plan, options, *self.communicator).value().parameters;
    };
    // Half of two bytes for each use: forward, and twice backward for b.
    EXPECT_EQ(gathered(3, {}), 2 * (512 + 1024 + 256));
    EXPECT_EQ(gathered(3, {2, 1, 0}), gathered(3, {}));
    EXPECT_EQ(gathered(3, {2, 0, 1, 1, 0}), gathered(3, {}) + 512 + 1024);
    for (int stage = 0; stage < 3; ++stage) {
      EXPECT_EQ(gathered(stage, {2, 0, 1, 1, 0}), gathered(stage, {}));
    }
    self.AwaitOthers();
  });
}

TEST(BackwardUnitsTest, TheNextUseIsGatheredAhead) {
  // Each sends as many bytes as it has elements.
  const ModelSpec model = {{"a", {{"a.w", 512}}}, {"b", {{"b.w", 1024}}}, {"c", {{"c.w", 256}}}};
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = CreateZero(model, {.stage = 3, .backward_units = {2, 0, 1, 0}}, self).value();
    int64_t before = zero->traffic().parameters;
    const auto sent = [&] {
      return zero->traffic().parameters - std::exchange(before, zero->traffic().parameters);
    };
    const auto use = [&](int unit) {
      EXPECT_OK(zero->Acquire(unit, Pass::kBackward));
      EXPECT_OK(zero->Release(unit));
    };
    use(2);
    EXPECT_EQ(sent(), 256 + 512);
    use(0);
    EXPECT_EQ(sent(), 1024);
    use(1);
    EXPECT_EQ(sent(), 512);
    use(0);
    EXPECT_EQ(sent(), 0);
    ASSERT_OK(zero->CancelStep());
  });
}

TEST(BackwardUnitsTest, OrdersThatAreNoneAreRefusedOnAllRanks) {
  OnThreads({.size = 2}, [](Rank& self) {
    const auto refused = [&](std::vector<int> units, const std::string& why) {
      EXPECT_THAT(CreateZero(ToyModel(), Options(3, std::move(units)), self),
                  StatusIs(kInvalid, HasSubstr(why)));
    };
    const ModelSpec model = ToyModel();
    const auto name = [&](size_t unit) { return absl::StrCat("\"", model[unit].name, "\""); };
    refused({4, 3, 2, 1}, "backward_units: the last use of unit " + name(1));
    refused({3, 2, 1, 0}, "backward_units: there is no use of unit " + name(4));
    refused({4, 3, 1, 2, 0},
            "backward_units: the last use of unit " + name(2) + " comes behind that of " + name(1));
    refused({4, 3, 2, 1, 5, 0}, "backward_units: use 4 is of unit 5 of 5");
    refused({4, 3, 2, -1, 1, 0}, "backward_units: use 3 is of unit -1 of 5");
    // Of one rank.
    EXPECT_THAT(
        CreateZero(ToyModel(), Options(3, Orders()[static_cast<size_t>(self.rank)]), self),
        StatusIs(kInvalid, HasSubstr("ranks disagree: rank 0 has backward_units 4 2 3 2 0 1 "
                                     "0; rank 1 has backward_units 4 0 1 2 3 2 1 0")));
  });
}

TEST(BackwardUnitsTest, UsesOutOfTurnAreErrorsAndForwardPassesAreFree) {
  OnThreads({.size = 1}, [](Rank& self) {
    auto zero = CreateZero(ToyModel(), Options(3, {4, 2, 3, 2, 1, 0}), self).value();
    const auto use = [&](int unit, Pass pass = Pass::kBackward) {
      BRIGADE_RETURN_IF_ERROR(zero->Acquire(unit, pass));
      return zero->Release(unit);
    };
    const std::string second = ToyModel()[2].name;
    ASSERT_OK(use(4));
    EXPECT_THAT(use(3), StatusIs(kPrecondition,
                                 HasSubstr("use 1 of backward_units is of unit \"" + second)));
    // An evaluation, say.
    ASSERT_OK(use(3, Pass::kForward));
    ASSERT_OK(use(2));
    EXPECT_THAT(zero->FinishBackward(),
                StatusIs(kPrecondition, HasSubstr("2 of 6 uses of backward_units are made")));
    for (const int unit : {3, 2, 1, 0}) ASSERT_OK(use(unit));
    EXPECT_THAT(use(0),
                StatusIs(kPrecondition, HasSubstr("all 6 uses of backward_units are made")));
    // From the begin again.
    ASSERT_OK(zero->CancelStep());
    ASSERT_OK(use(4));
    ASSERT_OK(zero->CancelStep());
  });
}

}  // namespace
}  // namespace brigade::zero
