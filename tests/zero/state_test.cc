// State out and in: from any stage to any stage, in chunks, over every engine, and the errors.

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

// Weights of three types, trainable and frozen, tied ones, and a bucket without elements.
ModelSpec MixedToy() {
  ModelSpec model = ToyMatrices();
  model[0].parameters[1].dtype = DType::kFloat32;
  model[1].parameters[1].dtype = DType::kBFloat16;
  model[1].parameters.push_back({"h.0.frozen32", 70, DType::kFloat32, 0, false});
  model[1].parameters.push_back({"h.0.frozen16", 300, DType::kBFloat16, 0, false});
  model[2].parameters[0].dtype = DType::kBFloat16;
  model.push_back({"nothing", {{"nothing.w", 0}}});
  return model;
}

ZeroOptions Options(int stage, optim::OptimizerKind kind = optim::OptimizerKind::kAdamW,
                    double momentum = 0.0) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = DType::kFloat16;
  options.bucket_elements = 1000;
  options.optimizer.kind = kind;
  options.optimizer.coded.min_elements = 500;
  options.optimizer.groups[0].momentum = momentum;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 8;
  options.loss_scaler.loss_scale_window = 3;
  return options;
}

// By rank.
using States = std::vector<CapturedState>;

// Steps [first, last) from states (none: a new run); returns the states and rank 0's parameters.
// One step on each side of the middle is skipped.
struct Trained {
  States states = States(kRanks);
  std::vector<std::vector<float>> parameters;
};
Trained Train(const ZeroOptions& options, int first, int last, const States* from = nullptr) {
  Trained result;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    auto zero = CreateZero(MixedToy(), options, self);
    ASSERT_OK(zero);
    if (from != nullptr) {
      // Chunks of one unit, which most slices have several of, of two, and of more than a slice.
      ASSERT_OK(LoadCaptured(**zero, (*from)[rank], self.rank == 2 ? 4 << 20 : 300 << self.rank));
    } else {
      ASSERT_OK(InitializeToy(**zero));
    }
    ToyTrainer trainer(**zero, self, {{.step = 1, .rank = 2}, {.step = 5, .rank = 0}});
    trainer.step = first;
    while (trainer.step < last) ASSERT_OK(trainer.Step());
    ASSERT_OK(self.stream->Synchronize());
    auto state = Capture(**zero, self);
    ASSERT_OK(state);
    result.states[rank] = *std::move(state);
    auto exported = Exported(**zero);
    ASSERT_OK(exported);
    if (self.rank == 0) result.parameters = *std::move(exported);
  });
  return result;
}

TEST(StateTest, GoesOnWithTheSameBitsInAnyStageWithTheStateAnywhere) {
  const struct {
    optim::OptimizerKind kind;
    double momentum;
  } optimizers[] = {{optim::OptimizerKind::kAdamW, 0.0},  {optim::OptimizerKind::kLion, 0.0},
                    {optim::OptimizerKind::kAdamW8, 0.0}, {optim::OptimizerKind::kLamb, 0.0},
                    {optim::OptimizerKind::kMuon, 0.9},   {optim::OptimizerKind::kSgd, 0.9},
                    {optim::OptimizerKind::kSgd, 0.0},    {optim::OptimizerKind::kAdafactor, 0.9}};
  for (const auto& [kind, momentum] : optimizers) {
    const Trained wanted = Train(Options(0, kind, momentum), 0, 8);
    ASSERT_FALSE(wanted.parameters.empty());
    EXPECT_EQ(wanted.states[0].step.step, 6);
    const auto options_at = [&](const Home& home) {
      ZeroOptions options = Options(home.stage, kind, momentum);
      options.offload = home.offload;
      return options;
    };
    // LAMB's, Muon's and Adafactor's state is on the device.
    const bool stays = kind == optim::OptimizerKind::kLamb || kind == optim::OptimizerKind::kMuon ||
                       kind == optim::OptimizerKind::kAdafactor;
    const auto has = [stays](const Home& home) { return !stays || !home.offload.enabled(); };
    for (const Home& from : Homes()) {
      if (!has(from)) continue;
      const Trained half = Train(options_at(from), 0, 4);
      for (const Home& to : Homes()) {
        if (!has(to)) continue;
        // Optimizers differ in what there is of a state, not in how it is read.
        if (momentum != 0 && from.offload.enabled()) continue;
        SCOPED_TRACE(absl::StrCat(ToString(from), " to ", ToString(to)));
        const Trained whole = Train(options_at(to), 4, 8, &half.states);
        EXPECT_EQ(whole.parameters, wanted.parameters);
        EXPECT_EQ(whole.states, wanted.states);
      }
    }
  }
}

class EnginesTest : public ::testing::TestWithParam<collectives::CreateEngineFn (*)(
                        const collectives::RanksOptions& options)> {};

TEST_P(EnginesTest, AStateThatIsLoadedGivesTheSameStepAgain) {
  std::vector<ZeroOptions> settings;
  for (int stage = 0; stage < kStages; ++stage) settings.push_back(Options(stage));
  settings.push_back(Options(3));
  settings.back().persistence_threshold = 10'000;
  for (const ZeroOptions& setting : settings) {
    const collectives::RanksOptions options = {.size = kRanks};
    collectives::OnRanks(options, GetParam()(options), [&](Rank& self) {
      auto zero = CreateZero(MixedToy(), setting, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      const auto step = [&]() -> absl::StatusOr<CapturedState> {
        absl::Status status = trainer.Step();
        status.Update(self.communicator->Synchronize(*self.stream));
        if (!status.ok()) return status;
        return Capture(*zero, self);
      };
      const auto before = step();
      ASSERT_OK(before);
      const auto wanted = step();
      ASSERT_OK(wanted);
      // Weights that were gathered before the load are not those after it.
      ASSERT_OK(trainer.Forward());
      ASSERT_OK(self.communicator->Synchronize(*self.stream));
      ASSERT_OK(LoadCaptured(*zero, *before, 256));
      const auto loaded = Capture(*zero, self);
      ASSERT_OK(loaded);
      EXPECT_EQ(*loaded, *before);
      --trainer.step;
      const auto again = step();
      ASSERT_OK(again);
      EXPECT_EQ(*again, *wanted);
      self.AwaitOthers();
    });
  }
}

collectives::CreateEngineFn EmulatedNcclEngines(const collectives::RanksOptions& options) {
  emulator::EmulatedNccl::Reset();
  return collectives::NcclEngines(options);
}

INSTANTIATE_TEST_SUITE_P(Threads, EnginesTest, ::testing::Values(collectives::ThreadEngines));
INSTANTIATE_TEST_SUITE_P(Gloo, EnginesTest, ::testing::Values(collectives::testing::GlooEngines));
INSTANTIATE_TEST_SUITE_P(Nccl, EnginesTest, ::testing::Values(EmulatedNcclEngines));

// Not through float, which would change NaNs.
TEST(StateTest, FrozenWeightsKeepEveryBitPatternOnAllRanks) {
  constexpr int64_t kPatterns = 1 << 16;
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = 2}, [&](Rank& self) {
      const ModelSpec model = {{"u",
                                {{"w", 10},
                                 {"f", kPatterns, DType::kFloat16, 0, false},
                                 {"b", kPatterns, DType::kBFloat16, 0, false}}}};
      ZeroOptions options;
      options.stage = stage;
      auto zero = CreateZero(model, options, self).value();
      const auto read = [&](int b, int, ElementRange range, void* values) {
        const Bucket& bucket = zero->plan().bucket(b);
        const int64_t first = self.rank * zero->plan().slice(bucket) + range.begin;
        std::memset(values, 0, static_cast<size_t>(range.size * StateWidth(bucket)));
        for (int64_t i = 0; i < range.size && !bucket.trainable; ++i) {
          static_cast<uint16_t*>(values)[i] = static_cast<uint16_t>(first + i);
        }
        return absl::OkStatus();
      };
      auto step = Capture(*zero, self).value().step;
      ASSERT_OK(zero->LoadState(step, read, 1000));
      UnitScope scope(*zero, 0, Pass::kForward);
      for (const int parameter : {1, 2}) {
        std::vector<uint16_t> seen(kPatterns);
        ASSERT_OK(self.stream->Copy(seen.data(), scope.weights(parameter), 2 * kPatterns));
        ASSERT_OK(self.stream->Synchronize());
        for (size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], i) << "stage " << stage;
      }
    });
  }
}

TEST(StateTest, IsReadOnceInOrderInChunks) {
  struct Call {
    int bucket, array;
    ElementRange range;
  };
  for (const int64_t chunk_bytes : {1, 256, 1000, 1 << 20}) {
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = CreateZero(MixedToy(), Options(3), self).value();
      const auto state = Capture(*zero, self).value();
      std::vector<Call> calls;
      ASSERT_OK(zero->LoadState(
          state.step,
          [&](int bucket, int array, ElementRange range, void*) {
            calls.push_back({bucket, array, range});
            return absl::OkStatus();
          },
          chunk_bytes));
      auto call = calls.begin();
      const int64_t units = std::max<int64_t>(1, chunk_bytes / 256);
      for (int b = 0; b < static_cast<int>(zero->plan().buckets().size()); ++b) {
        const Bucket& bucket = zero->plan().bucket(b);
        const int64_t slice = zero->plan().slice(bucket);
        const int64_t chunk = units * 256 / StateWidth(bucket);
        for (int array = 0; array < (bucket.trainable ? 3 : 1); ++array) {
          for (int64_t begin = 0; begin < slice; begin += chunk, ++call) {
            ASSERT_NE(call, calls.end());
            EXPECT_EQ(call->bucket, b);
            EXPECT_EQ(call->array, array);
            EXPECT_EQ(call->range.begin, begin);
            EXPECT_EQ(call->range.size, std::min(chunk, slice - begin));
          }
        }
      }
      EXPECT_EQ(call, calls.end());
    });
  }
}

TEST(StateTest, AnErrorOfReadOnOneRankIsAnErrorOnAll) {
  for (int stage = 0; stage < kStages; ++stage) {
    OnThreads({.size = kRanks}, [&](Rank& self) {
      auto zero = CreateZero(MixedToy(), Options(stage), self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      ASSERT_OK(trainer.Step());
      ASSERT_OK(self.stream->Synchronize());
      const auto before = Capture(*zero, self).value();
      kernels::StepState later = before.step;
      later.iteration += 7;
      int calls = 0;
      const auto read = [&](int, int, ElementRange, void*) {
        ++calls;
        return self.rank == 1 && calls == 5 ? absl::NotFoundError("no such tensor")
                                            : absl::OkStatus();
      };
      EXPECT_THAT(
          zero->LoadState(later, read),
          StatusIs(absl::StatusCode::kNotFound,
                   HasSubstr(self.rank == 1 ? "no such tensor" : "rank 1: no such tensor")));
      if (self.rank == 1) {
        EXPECT_EQ(calls, 5);
      }
      // The step does not count as loaded.
      EXPECT_EQ(Capture(*zero, self).value().step.iteration, before.step.iteration);
      ASSERT_OK(LoadCaptured(*zero, before));
      EXPECT_EQ(Capture(*zero, self).value(), before);
    });
  }
}

TEST(StateTest, AStepStateThatNoRunHasIsRefusedOnAllRanksAndChangesNothing) {
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(MixedToy(), Options(2), self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    ASSERT_OK(trainer.Step());
    ASSERT_OK(self.stream->Synchronize());
    const auto before = Capture(*zero, self).value();
    const auto refuses = [&](const std::function<void(kernels::StepState&)>& change,
                             const std::string& first, const std::string& second,
                             int64_t chunk_bytes = 1024) {
      CapturedState bad = before;
      if (self.rank == 1) change(bad.step);
      for (auto& bucket : bad.arrays) {
        for (std::string& array : bucket) std::fill(array.begin(), array.end(), '\1');
      }
      EXPECT_THAT(
          LoadCaptured(*zero, bad, chunk_bytes),
          StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(first), HasSubstr(second))));
      EXPECT_EQ(Capture(*zero, self).value(), before);
    };
    const std::string rank = self.rank == 1 ? "" : "rank 1: ";
    refuses([](auto& step) { step.hysteresis = -5; }, rank, "hysteresis is -5");
    refuses([](auto& step) { step.grad_norm = -1; }, rank, "grad_norm is -1");
    refuses([](auto& step) { step.step += 100, step.iteration += 100; }, "rank 0 is at step 1",
            "rank 1 at step 101");
    refuses([](auto&) {}, rank, "chunk_bytes is 0", self.rank == 1 ? 0 : 1024);
    ASSERT_OK(LoadCaptured(*zero, before));
  });
}

}  // namespace
}  // namespace brigade::zero
