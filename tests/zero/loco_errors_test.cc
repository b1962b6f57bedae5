// Errors of gradients that are summed as codes: what they keep over skipped steps, a change of the
// loss scale, and from one number of ranks to another.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/spec/codecs.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/testing/tolerance.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/saved_elements.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::RoundingError;
using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using internal::LocoErrors;
using precision::DType;

// Behind master and moments.
constexpr size_t kErrors = 3;

ZeroOptions Options(int stage, int node_ranks, int64_t reset_steps = 1024) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = DType::kFloat16;
  options.bucket_elements = 1000;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 10;
  options.loss_scaler.loss_scale_window = 3;
  options.loss_scaler.hysteresis = 1;
  options.quantized_gradients = kernels::QuantFormat::kInt4;
  options.node_ranks = node_ranks;
  options.loco = LocoOptions{.reset_steps = reset_steps};
  return options;
}

const LocoErrors& Loco(ZeroOptimizer& zero) { return ZeroOptimizerTestPeer::Loco(zero); }

// Messages, and the inverse of their loss scale, which is last but for what fills the line.
std::string BytesOf(ZeroOptimizer& zero) {
  const device::Buffer& errors = Loco(zero).errors();
  return {errors.as<char>().data(), static_cast<size_t>(errors.bytes())};
}
float InverseScaleOf(const std::string& errors) {
  float scale;
  std::memcpy(&scale, errors.data() + errors.size() - 64, sizeof(scale));
  return scale;
}

// In fp32 what a rank's messages of all buckets hold, without the loss scale; of sums, too; and the
// most by which their codes may miss it: half a code of the largest in a block, of each message.
// [bucket][element].
struct Errors {
  std::vector<std::vector<double>> values, half_codes;
};
Errors ErrorsIn(ZeroOptimizer& zero) {
  const Plan& plan = zero.plan();
  const std::string bytes = BytesOf(zero);
  const double inverse = InverseScaleOf(bytes);
  const int nodes = zero.options().node_ranks == 0 ? 1 : plan.ranks() / zero.options().node_ranks;
  const int places = plan.ranks() / nodes;
  Errors all;
  size_t at = 0;
  for (const Bucket& bucket : plan.buckets()) {
    auto& values = all.values.emplace_back(static_cast<size_t>(bucket.size));
    auto& half_codes = all.half_codes.emplace_back(static_cast<size_t>(bucket.size));
    if (!bucket.trainable) continue;
    const auto count = static_cast<size_t>(plan.slice(bucket));
    const size_t size = spec::CodesBegin(count) + spec::BlocksOf(count) * spec::kBlock;
    const int sums = nodes > 1 ? nodes : 0;
    for (int message = 0; message < plan.ranks() + sums; ++message) {
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
      const std::vector<float> errors =
          spec::Dequantize({begin, begin + static_cast<std::ptrdiff_t>(size)}, count, 8);
      const int part = message < plan.ranks()
                           ? message
                           : (message - plan.ranks()) * places + zero.rank() % places;
      for (size_t i = 0; i < count; ++i) {
        float maximum;
        std::memcpy(&maximum, bytes.data() + at + i / spec::kBlock * sizeof(float), sizeof(float));
        values[static_cast<size_t>(part) * count + i] += errors[i] * inverse;
        half_codes[static_cast<size_t>(part) * count + i] += maximum * inverse / 254;
      }
      at += size;
    }
  }
  EXPECT_EQ(at + 64, bytes.size());
  return all;
}
std::vector<std::vector<double>> Values(ZeroOptimizer& zero) { return ErrorsIn(zero).values; }

// Of a step in which rank 1 alone overflows, in this parameter or in all.
void ExpectTheSkippedStepToKeepAll(const ZeroOptions& options, int parameter) {
  OnThreads({.size = 4}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = 4, .rank = 1, .parameter = parameter}});
    for (int step = 0; step < 4; ++step) ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    const std::string errors = BytesOf(*zero);
    const kernels::StepState before = zero->controller().SaveState(zero->step_stream()).value();
    EXPECT_NE(InverseScaleOf(errors), 0);
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    EXPECT_TRUE(BytesOf(*zero) == errors);
    const kernels::StepState after = zero->controller().SaveState(zero->step_stream()).value();
    EXPECT_EQ(after.skip, 1);
    EXPECT_EQ(after.loss_scale, before.loss_scale / 2);
    // The next one counts, and has the new scale.
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    EXPECT_TRUE(BytesOf(*zero) != errors);
    EXPECT_EQ(InverseScaleOf(BytesOf(*zero)), 1 / after.loss_scale);
    self.AwaitOthers();
  });
}

TEST(LocoErrorsTest, ASkippedStepKeepsEveryBit) {
  for (const int node_ranks : {0, 2}) {
    for (int stage = 0; stage < kStages; ++stage) {
      ExpectTheSkippedStepToKeepAll(Options(stage, node_ranks), -1);
    }
  }
}

// Messages of the other buckets have nothing that is not finite, which would keep their errors.
TEST(LocoErrorsTest, ASkippedStepKeepsErrorsOfBucketsThatStayFinite) {
  constexpr int kOfFirstBlock = 2;
  const Plan plan = Plan::Create(ToyMatrices(), {4, DType::kFloat16, 1000}).value();
  ASSERT_EQ(plan.parameter(kOfFirstBlock).spec.name, "h.0.w");
  int others = 0;
  for (const Bucket& bucket : plan.buckets()) {
    others += bucket.trainable && &bucket != &plan.bucket(plan.parameter(kOfFirstBlock).bucket);
  }
  ASSERT_GE(others, 1);
  for (const int node_ranks : {0, 2}) {
    for (int stage = 0; stage < kStages; ++stage) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", nodes of ", node_ranks));
      ExpectTheSkippedStepToKeepAll(Options(stage, node_ranks), kOfFirstBlock);
    }
  }
}

// A rank's gradient of all elements in a step, without the loss scale, as the toy makes it of
// these weights. [bucket][element].
std::vector<std::vector<double>> GradientsOf(const Plan& plan, int rank, int step,
                                             const std::vector<std::vector<float>>& weights) {
  const auto weight = [&](int parameter, int64_t i) {
    return weights[static_cast<size_t>(parameter)][static_cast<size_t>(i)];
  };
  std::vector<std::vector<double>> gradients;
  for (const Bucket& bucket : plan.buckets()) {
    gradients.emplace_back(static_cast<size_t>(bucket.size));
  }
  for (int unit = 0; unit < static_cast<int>(plan.units().size()); ++unit) {
    const float activation = Activation(plan, unit, weight);
    for (const int p : plan.unit(unit).parameters) {
      const Parameter& of = plan.parameter(p);
      for (int64_t i = 0; i < of.spec.size && HasGradient(plan, unit, p); ++i) {
        gradients[static_cast<size_t>(of.bucket)][static_cast<size_t>(of.begin + i)] +=
            GradientElement({rank, 0, step, unit, p, i}, weight(p, i), activation, 1.0f, {});
      }
    }
  }
  return gradients;
}

// Sum over steps of what updates read + errors of all ranks and of nodes' sums over 1 - beta = sum
// over steps and ranks of gradients; over a step that is skipped and loss scales that change.
void ExpectNothingToBeLost(ZeroOptions options, double beta) {
  constexpr int kRanks = 4, kSteps = 12, kSkipped = 5;
  options.dtype = DType::kFloat32;
  options.loco->err_beta = beta;
  const Plan plan = Plan::Create(ToyMatrices(), {kRanks, options.dtype, 1000}).value();
  // [bucket][element].
  std::vector<std::vector<double>> in, slack;
  for (const Bucket& bucket : plan.buckets()) in.emplace_back(static_cast<size_t>(bucket.size));
  slack = in;
  std::vector<std::vector<double>> out = in;
  std::vector<Errors> errors(kRanks);
  std::vector<float> scales;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = kSkipped, .rank = 1}});
    for (int step = 0; step < kSteps; ++step) {
      const auto weights = Exported(*zero).value();
      const float scale = zero->controller().SaveState(zero->step_stream()).value().loss_scale;
      ASSERT_OK(trainer.Step());
      const bool skip = zero->controller().SaveState(zero->step_stream()).value().skip != 0;
      EXPECT_EQ(skip, step == kSkipped);
      errors[static_cast<size_t>(self.rank)] = ErrorsIn(*zero);
      for (size_t b = 0; b < out.size() && !skip; ++b) {
        const Bucket& bucket = plan.buckets()[b];
        const void* const sums = ZeroOptimizerTestPeer::SummedSlice(*zero, static_cast<int>(b));
        for (int64_t i = 0; i < plan.slice(bucket) && bucket.trainable; ++i) {
          out[b][static_cast<size_t>(self.rank * plan.slice(bucket) + i)] +=
              Load(sums, DType::kFloat32, i) / scale;
        }
      }
      self.AwaitOthers();
      if (self.rank == 0) {
        scales.push_back(scale);
        for (int rank = 0; rank < kRanks && !skip; ++rank) {
          const auto gradients = GradientsOf(plan, rank, step, weights);
          for (size_t b = 0; b < in.size(); ++b) {
            for (size_t i = 0; i < in[b].size(); ++i) in[b][i] += gradients[b][i];
          }
        }
        for (size_t b = 0; b < in.size(); ++b) {
          if (!plan.buckets()[b].trainable) continue;
          for (size_t i = 0; i < in[b].size(); ++i) {
            double left = 0;
            for (const Errors& of_rank : errors) {
              left += of_rank.values[b][i] / (1 - beta);
              // What codes of 8 bits have left out of errors.
              if (!skip) slack[b][i] += of_rank.half_codes[b][i] / (1 - beta);
            }
            EXPECT_NEAR(out[b][i] + left, in[b][i], slack[b][i] + RoundingError<float>(64, 16))
                << "step " << step << ", bucket " << b << ", element " << i;
          }
        }
      }
      self.AwaitOthers();
    }
  });
  EXPECT_GT(*std::max_element(scales.begin(), scales.end()), scales[0]);
  EXPECT_LT(scales[kSkipped + 1], scales[kSkipped]);
}

TEST(LocoErrorsTest, NothingIsLostAtAnyStep) {
  for (const int node_ranks : {0, 2}) {
    for (const double beta : {0.0, 0.8}) {
      SCOPED_TRACE(absl::StrCat("nodes of ", node_ranks, ", beta ", beta));
      ExpectNothingToBeLost(Options(node_ranks == 0 ? 1 : 3, node_ranks), beta);
    }
  }
}

// The step before the save is skipped and halves the scale, so that errors have another one.
TEST(LocoErrorsTest, WhatIsSavedHasNoLossScale) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), Options(1, 0), self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = 3}});
    for (int step = 0; step < 4; ++step) ASSERT_OK(trainer.Step());
    const CapturedState saved = Capture(*zero, self).value();
    EXPECT_EQ(saved.step.skip, 1);
    const std::string bytes = BytesOf(*zero);
    EXPECT_EQ(InverseScaleOf(bytes), 1);
    // The same, under another scale.
    CapturedState other = saved;
    other.step.loss_scale *= 4;
    ASSERT_OK(LoadCaptured(*zero, other));
    EXPECT_TRUE(BytesOf(*zero) == bytes);
    self.AwaitOthers();
  });
}

// Steps until a save, which the last one is skipped before, and behind it until errors have been
// forgotten and another step was skipped: the same in a run that goes on and in one that has loaded
// the state into another stage.
TEST(LocoErrorsTest, AResumedTrainingHasTheBitsOfOneThatGoesOn) {
  constexpr int kSaved = 4, kSteps = 10;
  for (const int node_ranks : {0, 2}) {
    for (int stage = 0; stage < kStages; ++stage) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, ", nodes of ", node_ranks));
      OnThreads({.size = 4}, [&](Rank& self) {
        const std::vector<Injection> injections = {{.step = 3, .rank = 2}, {.step = 7}};
        const ZeroOptions options = Options(stage, node_ranks, /*reset_steps=*/6);
        ZeroOptions others = options;
        others.stage = (stage + 1) % kStages;
        auto zero = CreateZero(ToyMatrices(), options, self).value();
        ASSERT_OK(InitializeToy(*zero));
        ToyTrainer trainer(*zero, self, injections);
        while (trainer.step < kSaved) ASSERT_OK(trainer.Step());
        const CapturedState saved = Capture(*zero, self).value();
        const std::string errors = BytesOf(*zero);
        while (trainer.step < kSteps) ASSERT_OK(trainer.Step());
        const CapturedState wanted = Capture(*zero, self).value();
        EXPECT_EQ(wanted.step.step, kSteps - 2);

        auto resumed = CreateZero(ToyMatrices(), others, self).value();
        ASSERT_OK(LoadCaptured(*resumed, saved, /*chunk_bytes=*/300));
        EXPECT_TRUE(BytesOf(*resumed) == errors);
        // Without a step the same is saved again.
        EXPECT_EQ(Capture(*resumed, self).value(), saved);
        ToyTrainer goes_on(*resumed, self, injections);
        for (goes_on.step = kSaved; goes_on.step < kSteps;) ASSERT_OK(goes_on.Step());
        EXPECT_EQ(Capture(*resumed, self).value(), wanted);
        // Errors do something.
        auto without = CreateZero(ToyMatrices(), others, self).value();
        CapturedState no_errors = saved;
        for (auto& arrays : no_errors.arrays) {
          if (arrays.size() > kErrors) arrays[kErrors].assign(arrays[kErrors].size(), '\0');
        }
        ASSERT_OK(LoadCaptured(*without, no_errors));
        ToyTrainer zeros(*without, self, injections);
        for (zeros.step = kSaved; zeros.step < kSteps;) ASSERT_OK(zeros.Step());
        EXPECT_FALSE(Capture(*without, self).value() == wanted);
        self.AwaitOthers();
      });
    }
  }
}

struct RanksAndNodes {
  int ranks;
  int node_ranks = 0;
};

// Of a batch of four micro-batches, whatever ranks share them.
ZeroOptions Sharing(const RanksAndNodes& of, int stage, bool average) {
  ZeroOptions options = Options(stage, of.node_ranks);
  options.micro_batches = 4 / of.ranks;
  options.average_gradients = average;
  return options;
}

// What all ranks' messages hold beside what is saved: a code of int8 may leave out 1/254 of the
// largest of its block, of each rank.
void ExpectTheSum(const std::vector<std::vector<std::vector<double>>>& of_rank, const Plan& plan,
                  const std::vector<CapturedState>& saved, double divisor, double of_block) {
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    const Parameter& parameter = plan.parameters()[p];
    if (!parameter.spec.trainable) continue;
    const std::vector<float> elements = Elements(plan, saved, static_cast<int>(p), kErrors);
    const auto bucket = static_cast<size_t>(parameter.bucket);
    double largest = 0;
    for (size_t q = 0; q < plan.parameters().size(); ++q) {
      if (plan.parameters()[q].bucket != parameter.bucket) continue;
      for (const float x : Elements(plan, saved, static_cast<int>(q), kErrors)) {
        largest = std::max(largest, std::fabs(static_cast<double>(x)));
      }
    }
    for (size_t i = 0; i < elements.size(); ++i) {
      double sum = 0;
      for (const auto& values : of_rank) {
        sum += values[bucket][static_cast<size_t>(parameter.begin) + i] / divisor;
      }
      EXPECT_NEAR(elements[i], sum, of_block * largest + std::fabs(sum) * 0x1p-20)
          << parameter.spec.name << ", element " << i;
    }
  }
}

double DivisorOf(const ZeroOptions& options, int ranks) {
  return options.average_gradients ? ranks * options.micro_batches : 1;
}

void ExpectToGoOn(const RanksAndNodes& first, const RanksAndNodes& then, bool average) {
  SCOPED_TRACE(absl::StrCat(first.ranks, " ranks to ", then.ranks, average ? ", average" : ""));
  std::vector<CapturedState> saved(static_cast<size_t>(first.ranks));
  std::vector<CapturedState> loaded(static_cast<size_t>(then.ranks));
  std::vector<std::vector<std::vector<double>>> before(saved.size()), after(loaded.size());
  OnThreads({.size = first.ranks}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), Sharing(first, 1, average), self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = 4}});
    for (int step = 0; step < 5; ++step) ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    const auto me = static_cast<size_t>(self.rank);
    before[me] = Values(*zero);
    saved[me] = Capture(*zero, self).value();
    self.AwaitOthers();
  });
  const Plan old = Plan::Create(ToyMatrices(), {first.ranks, DType::kFloat16, 1000}).value();
  ExpectTheSum(before, old, saved, DivisorOf(Sharing(first, 1, average), first.ranks),
               /*of_block=*/0x1p-18);

  const Plan plan = Plan::Create(ToyMatrices(), {then.ranks, DType::kFloat16, 1000}).value();
  const ZeroOptions options = Sharing(then, 2, average);
  OnThreads({.size = then.ranks}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    EXPECT_EQ(zero->state_arrays(), 4);
    ASSERT_OK(LoadElements(old, saved, *zero));
    const auto me = static_cast<size_t>(self.rank);
    if (then.ranks > 1) after[me] = Values(*zero);
    loaded[me] = Capture(*zero, self).value();
    ToyTrainer trainer(*zero, self);
    trainer.step = 5;
    ASSERT_OK(trainer.Step());
    const CapturedState next = Capture(*zero, self).value();
    EXPECT_EQ(next.step.step, saved[0].step.step + 1);
    // A rank alone sends no codes, and keeps what it has loaded.
    for (size_t b = 0; b < next.arrays.size() && then.ranks == 1; ++b) {
      if (plan.buckets()[b].trainable) {
        EXPECT_TRUE(next.arrays[b][kErrors] == loaded[me].arrays[b][kErrors]);
      }
    }
    self.AwaitOthers();
  });
  int compared = 0;
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    const int parameter = static_cast<int>(p);
    if (!plan.parameter(parameter).spec.trainable) continue;
    const std::vector<float> elements = Elements(old, saved, parameter, kErrors);
    EXPECT_EQ(Elements(plan, loaded, parameter, kErrors), elements);
    for (const float x : elements) compared += x != 0 ? 1 : 0;
  }
  EXPECT_GT(compared, 100);
  if (then.ranks == 1) return;
  ExpectTheSum(after, plan, loaded, DivisorOf(options, then.ranks), 1.0 / 254);
}

TEST(LocoErrorsTest, AnyNumberOfRanksKeepsTheSum) {
  for (const bool average : {true, false}) {
    ExpectToGoOn({4}, {4}, average);
    ExpectToGoOn({4}, {2}, average);
    ExpectToGoOn({4}, {1}, average);
    ExpectToGoOn({2}, {4, 2}, average);
    ExpectToGoOn({4, 2}, {2}, average);
    ExpectToGoOn({4, 2}, {4}, average);
  }
}

TEST(LocoErrorsTest, ErrorsAreSharedBeforeTheStateIsLentAndCancelStepForgetsThem) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = CreateZero(ToyModel(), Options(2, 0), self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    auto reader = self.context->CreateStream("reader").value();
    ASSERT_OK(trainer.Step());
    EXPECT_THAT(zero->LendState(*reader),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         ::testing::HasSubstr("ShareErrors comes first")));
    EXPECT_EQ(zero->error_arrays(), 1);
    const CapturedState saved = Capture(*zero, self).value();
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->CancelStep());
    const CapturedState canceled = Capture(*zero, self).value();
    ASSERT_OK(zero->step_stream().Synchronize());
    const std::string none = BytesOf(*zero);
    EXPECT_TRUE(none == std::string(none.size(), '\0'));
    int had = 0;
    for (size_t b = 0; b < saved.arrays.size(); ++b) {
      if (!zero->plan().buckets()[b].trainable) continue;
      const std::string& errors = canceled.arrays[b][kErrors];
      EXPECT_TRUE(errors == std::string(errors.size(), '\0'));
      had += saved.arrays[b][kErrors] != errors ? 1 : 0;
    }
    EXPECT_GT(had, 0);
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::zero
