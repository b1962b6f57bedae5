// Errors of exchanges: what they keep, and when.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/testing/tolerance.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/saved_elements.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "brigade/zero/plan/layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::RoundingError;
using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;

ZeroOptions Options(int stage, optim::OptimizerKind kind = optim::OptimizerKind::kAdamW) {
  ZeroOptions options;
  options.optimizer.kind = kind;
  options.optimizer.freeze_step = 2;
  // Ranks of 0/1 Adam meet in each step from the third one on.
  options.optimizer.zero_one = {.var_freeze_step = 2, .local_step_clipper = 1};
  options.stage = stage;
  options.dtype = DType::kFloat16;
  options.bucket_elements = 1000;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 10;
  options.max_grad_norm = 2.0;
  if (!options.averages_moments()) options.gradient_compression = CompressionOptions();
  return options;
}

ZeroOptions Options(int stage, GradientCompression method) {
  ZeroOptions options = Options(stage);
  options.gradient_compression = {.method = method, .rank = 2, .density = 0.03};
  return options;
}

// Of signs, in two hops with nodes of so many ranks.
ZeroOptions InNodes(ZeroOptions options, int node_ranks) {
  options.node_ranks = node_ranks;
  return options;
}
// Groups of two ranks.
ZeroOptions InGroups(ZeroOptions options) {
  options.shard_ranks = 2;
  return options;
}
// Two nodes' ranks, or two groups'; else an odd number.
int RanksFor(const ZeroOptions& options) {
  return options.node_ranks + options.shard_ranks == 0 ? 3 : 4;
}

// The bytes of a rank's errors of all buckets.
std::string ErrorsOf(ZeroOptimizer& zero, const ZeroOptions& options) {
  std::string bytes;
  const internal::GradientExchange& exchange = ZeroOptimizerTestPeer::Exchange(zero);
  for (size_t b = 0; b < zero.plan().buckets().size(); ++b) {
    const Bucket& bucket = zero.plan().buckets()[b];
    if (!bucket.trainable) continue;
    const auto errors = exchange.ErrorsOf(static_cast<int>(b));
    const auto layout = internal::ErrorLayoutOf(zero.plan(), options, bucket, zero.rank());
    const auto append = [&](const float* values, int64_t count) {
      bytes.append(reinterpret_cast<const char*>(values),
                   static_cast<size_t>(count) * sizeof(float));
    };
    append(errors.own, layout.own.size);
    append(errors.second, layout.second.size);
  }
  return bytes;
}

// Whether this rank's gradients of a bucket are all finite.
bool IsFinite(ZeroOptimizer& zero, int bucket) {
  const Bucket& of = zero.plan().bucket(bucket);
  const void* const own = ZeroOptimizerTestPeer::OwnGradient(zero, bucket);
  for (const BucketEntry& entry : of.entries) {
    for (int64_t i = 0; i < entry.range.size; ++i) {
      if (!std::isfinite(Load(own, of.dtype, entry.range.begin + i))) return false;
    }
  }
  return true;
}

std::string NameOf(const ZeroOptions& options) {
  return absl::StrCat("stage ", options.stage, ", ",
                      options.averages_moments() ? optim::ExchangingName(options.optimizer.kind)
                                                 : Name(options.gradient_compression->method),
                      ", nodes of ", options.node_ranks, ", groups of ", options.shard_ranks);
}

// All methods in all of their stages.
std::vector<ZeroOptions> AllOptions() {
  std::vector<ZeroOptions> all;
  for (const int stage : {0, 1, 2}) {
    all.push_back(Options(stage, optim::OptimizerKind::kOneBitAdam));
    all.push_back(Options(stage, optim::OptimizerKind::kOneBitLamb));
    all.push_back(Options(stage, optim::OptimizerKind::kZeroOneAdam));
    // Signs of gradients in the third step, and from the fifth to the seventh.
    all.push_back(Options(stage, optim::OptimizerKind::kZeroOneAdam));
    all.back().optimizer.zero_one = {
        .var_freeze_step = 100, .var_update_scaler = 1, .local_step_clipper = 1};
    for (const auto method : kGradientCompressions) all.push_back(Options(stage, method));
    all.push_back(InNodes(Options(stage, GradientCompression::kOneBit), 2));
  }
  all.push_back(InNodes(Options(2, optim::OptimizerKind::kOneBitAdam), 2));
  all.push_back(InGroups(Options(0, GradientCompression::kOneBit)));
  all.push_back(InGroups(Options(0, optim::OptimizerKind::kZeroOneAdam)));
  all.push_back(InGroups(Options(1, GradientCompression::kPowerSgd)));
  all.push_back(InGroups(Options(2, optim::OptimizerKind::kOneBitLamb)));
  all.push_back(InGroups(Options(3, GradientCompression::kTopK)));
  all.push_back(InGroups(Options(3, optim::OptimizerKind::kOneBitAdam)));
  return all;
}

// Of a place in groups: that it exchanges nothing. The first one always does.
bool HasPaddingAlone(const Plan& plan, const ZeroOptions& options, int rank) {
  return rank > 0 && internal::LargestExchange(plan, options, rank) == 0;
}

// Of a step in which rank 1 alone overflows, in this parameter or in all.
void ExpectTheSkippedStepToKeepAll(const ZeroOptions& options, int parameter) {
  OnThreads({.size = RanksFor(options)}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = 4, .rank = 1, .parameter = parameter}});
    for (int step = 0; step < 4; ++step) ASSERT_OK(trainer.Step());
    const CapturedState before = Capture(*zero, self).value();
    const std::string errors = ErrorsOf(*zero, options);
    // Where a place in groups has the padding of buckets alone, it has none.
    EXPECT_EQ(errors.empty(), HasPaddingAlone(zero->plan(), options, zero->rank()));
    EXPECT_TRUE(errors.empty() || errors != std::string(errors.size(), '\0'));
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    EXPECT_TRUE(ErrorsOf(*zero, options) == errors);
    // Of groups no rank has its own gradients any more.
    const bool has_own = options.shard_ranks == 0;
    for (size_t b = 0; b < zero->plan().buckets().size() && parameter >= 0 && has_own; ++b) {
      if (!zero->plan().buckets()[b].trainable) continue;
      const bool overflows = zero->plan().parameter(parameter).bucket == static_cast<int>(b);
      EXPECT_EQ(IsFinite(*zero, static_cast<int>(b)), !overflows || self.rank != 1) << b;
    }
    const CapturedState after = Capture(*zero, self).value();
    EXPECT_EQ(after.step.skip, 1);
    EXPECT_EQ(after.step.step, before.step.step);
    // All but the mean of errors, which has been rounded once more.
    for (size_t b = 0; b < after.arrays.size(); ++b) {
      for (size_t array = 0; array < after.arrays[b].size(); ++array) {
        const bool is_mean = static_cast<int>(array) == zero->state_arrays() - 2;
        EXPECT_TRUE(is_mean || after.arrays[b][array] == before.arrays[b][array])
            << "bucket " << b << ", array " << array;
      }
    }
    // The next one counts.
    ASSERT_OK(trainer.Step());
    EXPECT_EQ(Capture(*zero, self).value().step.step, before.step.step + 1);
    EXPECT_TRUE(errors.empty() || ErrorsOf(*zero, options) != errors);
    self.AwaitOthers();
  });
}

TEST(ExchangeTest, ASkippedStepKeepsEveryBitOfErrorsAndState) {
  for (const ZeroOptions& options : AllOptions()) ExpectTheSkippedStepToKeepAll(options, -1);
}

// Messages of the other buckets have nothing that is not finite, which would keep their errors.
TEST(ExchangeTest, ASkippedStepKeepsErrorsOfBucketsThatStayFinite) {
  const Plan plan = Plan::Create(ToyMatrices(), {3, DType::kFloat16, 1000}).value();
  int trained = 0;
  for (const Bucket& bucket : plan.buckets()) trained += bucket.trainable ? 1 : 0;
  ASSERT_GE(trained, 2);
  constexpr int kOfFirstBlock = 2;
  ASSERT_EQ(plan.parameter(kOfFirstBlock).spec.name, "h.0.w");
  for (const ZeroOptions& options : AllOptions()) {
    SCOPED_TRACE(NameOf(options));
    ExpectTheSkippedStepToKeepAll(options, kOfFirstBlock);
  }
}

TEST(ExchangeTest, ExactGradientsComeBeforeTheStartWithoutErrors) {
  OnThreads({.size = 2}, [&](Rank& self) {
    ZeroOptions options = Options(1);
    options.gradient_compression->start_step = 3;
    auto zero = CreateZero(ToyModel(), options, self).value();
    ZeroOptions without = options;
    without.gradient_compression.reset();
    auto plain = CreateZero(ToyModel(), without, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ASSERT_OK(InitializeToy(*plain));
    // A step that is skipped counts.
    const std::vector<Injection> injections = {{.step = 1}};
    ToyTrainer trainer(*zero, self, injections), other(*plain, self, injections);
    for (int step = 0; step < 4; ++step) {
      ASSERT_OK(trainer.Step());
      ASSERT_OK(other.Step());
      CapturedState mine = Capture(*zero, self).value();
      for (auto& arrays : mine.arrays) arrays.resize(std::min<size_t>(arrays.size(), 3));
      EXPECT_EQ(mine == Capture(*plain, self).value(), step < 3) << step;
      const std::string errors = ErrorsOf(*zero, options);
      EXPECT_EQ(errors == std::string(errors.size(), '\0'), step < 3) << step;
    }
    self.AwaitOthers();
  });
}

// What a rank has of an array of errors, by element of the bucket; 0 where it has nothing.
std::vector<float> ByElement(const Bucket& bucket, const internal::ErrorArray& array,
                             const float* values, int rank) {
  std::vector<float> elements(static_cast<size_t>(bucket.size));
  for (const internal::ErrorPiece& piece : internal::PiecesOf(array, rank)) {
    std::copy_n(values + piece.at, piece.size, elements.begin() + piece.in_bucket);
  }
  return elements;
}

// Whether ranks exchange something in the step behind so many that were tried, with errors.
bool HasExchange(const ZeroOptions& options, int tried) {
  if (options.is_zero_one_adam()) {
    return optim::StepOf(options.optimizer.zero_one, tried) == optim::ZeroOneStep::kSigns;
  }
  return tried >= options.exchanges_from();
}

// Calls visit(bucket, i, at) for the elements of parameters that are trained: i of the bucket, and
// `at` among its exchanged ones.
template <typename Visit>
void ForEachExchanged(const Plan& plan, const Visit& visit) {
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (!bucket.trainable) continue;
    int64_t at = 0;
    for (const BucketEntry& entry : bucket.entries) {
      for (int64_t i = 0; i < entry.range.size; ++i) {
        visit(static_cast<int>(b), entry.range.begin + i, at++);
      }
    }
  }
}

// Sum over steps of what updates read + mean over ranks of own errors + errors of the sums, where
// there are sums as signs = sum over steps of the mean of what went in: gradients, unscaled and
// clipped, or with 1-bit Adam what they make of the first moment.
void ExpectNothingToBeLost(const ZeroOptions& options) {
  constexpr int kSteps = 12, kSkipped = 5;
  ASSERT_TRUE(HasExchange(options, kSkipped));
  const int ranks = RanksFor(options);
  const auto size = static_cast<size_t>(ranks);
  const bool sends_moments = options.optimizer.kind == optim::OptimizerKind::kOneBitAdam;
  // [rank][element of all buckets].
  std::vector<std::vector<double>> gradients(size), locals(size), outputs(size), sums(size);
  // Before the step, the same on all ranks: each writes its slices.
  std::vector<double> moments;
  ForEachExchanged(Plan::Create(ToyMatrices(), {ranks, DType::kFloat16, 1000}).value(),
                   [&](int, int64_t, int64_t) { moments.push_back(0); });
  // Where 0/1 Adam's second moment is 0, updates take nothing from signs.
  std::vector<char> is_masked(moments.size());
  std::vector<double> in(moments.size()), out(moments.size());
  double magnitude = 0;
  OnThreads({.size = ranks}, [&](Rank& self) {
    const auto me = static_cast<size_t>(self.rank);
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    const Plan& plan = zero->plan();
    const auto& exchange = ZeroOptimizerTestPeer::Exchange(*zero);
    ToyTrainer trainer(*zero, self, {{.step = kSkipped, .rank = 1}});
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_OK(zero->step_stream().Synchronize());
      size_t next = 0;
      ForEachExchanged(plan, [&](int bucket, int64_t i, int64_t) {
        const int64_t slice = plan.slice(plan.bucket(bucket));
        const int64_t begin = options.stage == 0 ? 0 : self.rank * slice;
        const size_t at = next++;
        if (i / slice != self.rank || !options.averages_moments()) return;
        const auto of_element = [&](int array) {
          return zero->StateArray(bucket, array).value()[static_cast<size_t>(i - begin)];
        };
        if (sends_moments) moments[at] = of_element(1);
        is_masked[at] = options.is_zero_one_adam() && of_element(2) == 0 ? 1 : 0;
      });
      ASSERT_OK(trainer.Step());
      const kernels::StepState state = zero->controller().SaveState(zero->step_stream()).value();
      EXPECT_EQ(state.skip, step == kSkipped ? 1 : 0);
      gradients[me].clear(), locals[me].clear(), outputs[me].clear(), sums[me].clear();
      for (size_t b = 0; b < plan.buckets().size(); ++b) {
        const int index = static_cast<int>(b);
        const Bucket& bucket = plan.bucket(index);
        if (!bucket.trainable) continue;
        const void* const own = ZeroOptimizerTestPeer::OwnGradient(*zero, index);
        const auto layout = internal::ErrorLayoutOf(plan, options, bucket);
        const auto errors = exchange.ErrorsOf(index);
        const auto local = ByElement(bucket, layout.own, errors.own, self.rank);
        // Factors are no errors.
        const auto sum =
            ByElement(bucket, layout.second.parts > 1 ? layout.second : internal::ErrorArray(),
                      errors.second, self.rank);
        int64_t at = 0;
        for (const BucketEntry& entry : bucket.entries) {
          for (int64_t i = entry.range.begin; i < entry.range.begin + entry.range.size; ++i) {
            gradients[me].push_back(Load(own, bucket.dtype, i) * state.grad_multiplier);
            outputs[me].push_back(exchange.Mean(index)[at++]);
            locals[me].push_back(local[static_cast<size_t>(i)]);
            sums[me].push_back(sum[static_cast<size_t>(i)]);
          }
        }
      }
      self.AwaitOthers();
      const bool counts = state.skip == 0 && HasExchange(options, step);
      const double beta1 = sends_moments ? options.optimizer.groups[0].beta1 : 0.0;
      for (size_t i = 0; i < in.size() && self.rank == 0; ++i) {
        if (is_masked[i] != 0) continue;
        double left = 0;
        if (counts) in[i] += beta1 * moments[i], out[i] += outputs[0][i];
        for (size_t r = 0; r < size; ++r) {
          if (counts) {
            in[i] += (1 - beta1) * gradients[r][i] / ranks;
            EXPECT_EQ(outputs[r][i], outputs[0][i]);
          }
          left += locals[r][i] / ranks + sums[r][i];
          magnitude = std::max({magnitude, std::fabs(locals[r][i]), std::fabs(sums[r][i])});
        }
        magnitude = std::max({magnitude, std::fabs(in[i]), std::fabs(out[i])});
        // In each step what is sent rounds up to 5 times and its error twice, the sum of messages
        // once for each rank, their mean and its error 3 times; factors of 1 / ranks, beta1 and the
        // multiplier have roundings of their own. What rounds is up to twice the magnitude.
        EXPECT_NEAR(out[i] + left, in[i], RoundingError<float>(32 * kSteps, magnitude))
            << NameOf(options) << ", step " << step << ", element " << i;
      }
      self.AwaitOthers();
    }
  });
  // Errors were there to be lost.
  double left = 0;
  for (const auto& of_rank : locals) {
    for (const double error : of_rank) left = std::max(left, std::fabs(error));
  }
  EXPECT_GT(left, 1e-3);
}

TEST(ExchangeTest, NothingIsLostAtAnyStep) {
  using optim::OptimizerKind;
  std::vector<ZeroOptions> all;
  for (const int stage : {0, 1, 2}) {
    all.push_back(Options(stage, GradientCompression::kOneBit));
    all.push_back(Options(stage, OptimizerKind::kOneBitAdam));
    // Signs of gradients in steps 2, 4 to 6, and from 8 on: in the others errors wait.
    all.push_back(Options(stage, OptimizerKind::kZeroOneAdam));
    all.back().optimizer.zero_one = {
        .var_freeze_step = 100, .var_update_scaler = 1, .local_step_clipper = 1};
  }
  all.push_back(InNodes(Options(1, GradientCompression::kOneBit), 2));
  all.push_back(InNodes(Options(2, OptimizerKind::kOneBitAdam), 2));
  all.push_back(InNodes(all[2], 2));
  all.push_back(Options(0, GradientCompression::kPowerSgd));
  all.push_back(Options(2, GradientCompression::kTopK));
  for (const ZeroOptions& options : all) ExpectNothingToBeLost(options);
}

// What has never had a gradient has a second moment of 0 when that is frozen. Signs in the first
// moment must not move it.
void ExpectWhatHasNoGradientsToStay(const ZeroOptions& options) {
  OnThreads({.size = 2}, [&](Rank& self) {
    auto zero = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    const auto before = Exported(*zero).value();
    ToyTrainer trainer(*zero, self);
    double largest = 0;
    for (int step = 0; step < 60; ++step) {
      ASSERT_OK(trainer.Step());
      ASSERT_OK(zero->step_stream().Synchronize());
      if (step < 2) continue;
      for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
        const int index = static_cast<int>(b);
        const Bucket& bucket = zero->plan().bucket(index);
        if (!bucket.trainable) continue;
        const float* const local = ZeroOptimizerTestPeer::Exchange(*zero).ErrorsOf(index).own;
        for (int64_t i = 0; i < internal::ExchangedElements(bucket); ++i) {
          ASSERT_TRUE(std::isfinite(local[i]));
          largest = std::max(largest, std::fabs(static_cast<double>(local[i])));
        }
      }
    }
    const auto after = Exported(*zero).value();
    int without = 0, with = 0;
    for (size_t p = 0; p < after.size(); ++p) {
      const int parameter = static_cast<int>(p);
      const Parameter& of = zero->plan().parameter(parameter);
      if (!of.spec.trainable || of.spec.size == 0) continue;
      bool has_gradient = false;
      for (int unit = 0; unit < static_cast<int>(zero->plan().units().size()); ++unit) {
        for (const int used : zero->plan().unit(unit).parameters) {
          has_gradient =
              has_gradient || (used == parameter && HasGradient(zero->plan(), unit, used));
        }
      }
      ++(has_gradient ? with : without);
      EXPECT_EQ(after[p] == before[p], !has_gradient) << of.spec.name;
      for (const float weight : after[p]) EXPECT_LT(std::fabs(weight), 100) << of.spec.name;
    }
    EXPECT_GT(without, 0);
    EXPECT_GT(with, 0);
    // Gradients are clipped to a norm of 2, and so are errors of a few steps' moments.
    EXPECT_LT(largest, 20);
    self.AwaitOthers();
  });
}

TEST(ExchangeTest, AnElementWithoutGradientsNeverMovesUnderAFrozenMoment) {
  ExpectWhatHasNoGradientsToStay(Options(1, optim::OptimizerKind::kOneBitAdam));
  ZeroOptions options = Options(1, optim::OptimizerKind::kZeroOneAdam);
  ExpectWhatHasNoGradientsToStay(options);
  options.optimizer.zero_one.var_freeze_step = 100;
  options.optimizer.zero_one.var_update_scaler = 1;
  ExpectWhatHasNoGradientsToStay(options);
}

TEST(ExchangeTest, ErrorsAreSharedBeforeTheStateIsLent) {
  OnThreads({.size = 2}, [&](Rank& self) {
    const ZeroOptions options = Options(2);
    auto zero = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    auto reader = self.context->CreateStream("reader").value();
    ASSERT_OK(trainer.Step());
    EXPECT_THAT(zero->LendState(*reader),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         ::testing::HasSubstr("ShareErrors comes first")));
    const std::string own = ErrorsOf(*zero, options);
    ASSERT_OK(zero->ShareErrors());
    ASSERT_OK(zero->LendState(*reader));
    ASSERT_OK(zero->ReturnState());
    ASSERT_OK(zero->step_stream().Synchronize());
    const std::string shared = ErrorsOf(*zero, options);
    EXPECT_TRUE(shared != own);
    EXPECT_EQ(zero->state_arrays(), 5);
    // Once more nothing changes.
    ASSERT_OK(zero->ShareErrors());
    ASSERT_OK(zero->step_stream().Synchronize());
    EXPECT_TRUE(ErrorsOf(*zero, options) == shared);
    // Where ranks may not be able to share any more, they lend what they have.
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->CancelStep());
    ASSERT_OK(zero->LendState(*reader));
    ASSERT_OK(zero->ReturnState());
    self.AwaitOthers();
  });
}

// What is saved of own errors is their mean over ranks; in two hops the sum of nodes' errors over
// all ranks. [rank][bucket][element].
void ExpectTheMean(const std::vector<std::vector<std::vector<float>>>& own, const Plan& plan,
                   const std::vector<CapturedState>& saved) {
  const auto ranks = static_cast<double>(own.size());
  int compared = 0;
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    const Parameter& of = plan.parameters()[p];
    if (!of.spec.trainable) continue;
    const std::vector<float> mean = Elements(plan, saved, static_cast<int>(p), 3);
    for (size_t i = 0; i < mean.size(); ++i) {
      double sum = 0, magnitude = 0;
      for (const auto& of_rank : own) {
        const double error =
            of_rank[static_cast<size_t>(of.bucket)][static_cast<size_t>(of.begin) + i];
        sum += error, magnitude += std::fabs(error);
      }
      // A sum over ranks, and its product with a rounded 1 / ranks.
      EXPECT_NEAR(mean[i], sum / ranks, RoundingError<float>(ranks + 2, magnitude / ranks))
          << of.spec.name << ", element " << i;
      compared += sum != 0 ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 100);
}

// Another number of ranks has other buckets, parts and slices: by element each new rank's own error
// is the mean of what there was, and the errors of sums, or factors, are what they were. An error
// of a node's sum is that of all its ranks.
struct RanksAndNodes {
  int ranks;
  int node_ranks = 0;
};
void ExpectToGoOn(const RanksAndNodes& first, const RanksAndNodes& then,
                  GradientCompression method) {
  const int from = first.ranks, to = then.ranks;
  std::vector<CapturedState> saved(static_cast<size_t>(from)), loaded(static_cast<size_t>(to));
  std::vector<std::vector<std::vector<float>>> own_errors(saved.size());
  OnThreads({.size = from}, [&](Rank& self) {
    const ZeroOptions options = InNodes(Options(1, method), first.node_ranks);
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    for (int step = 0; step < 5; ++step) ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
      const Bucket& bucket = zero->plan().buckets()[b];
      auto& own = own_errors[static_cast<size_t>(self.rank)].emplace_back();
      if (!bucket.trainable) continue;
      const auto errors = ZeroOptimizerTestPeer::Exchange(*zero).ErrorsOf(static_cast<int>(b));
      const auto layout = internal::ErrorLayoutOf(zero->plan(), options, bucket);
      own = ByElement(bucket, layout.own, errors.own, self.rank);
    }
    saved[static_cast<size_t>(self.rank)] = Capture(*zero, self).value();
    self.AwaitOthers();
  });
  const Plan old = Plan::Create(ToyMatrices(), {from, DType::kFloat16, 1000}).value();
  ExpectTheMean(own_errors, old, saved);
  const Plan plan = Plan::Create(ToyMatrices(), {to, DType::kFloat16, 1000}).value();
  int owned = 0, compared = 0;
  OnThreads({.size = to}, [&](Rank& self) {
    const ZeroOptions options = InNodes(Options(2, method), then.node_ranks);
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(LoadElements(old, saved, *zero));
    for (size_t b = 0; b < plan.buckets().size(); ++b) {
      const int index = static_cast<int>(b);
      const Bucket& bucket = plan.bucket(index);
      if (!bucket.trainable) continue;
      const auto errors = ZeroOptimizerTestPeer::Exchange(*zero).ErrorsOf(index);
      const auto layout = internal::ErrorLayoutOf(plan, options, bucket);
      for (const BucketEntry& entry : bucket.entries) {
        if (entry.range.size == 0) continue;
        const auto own = Elements(old, saved, entry.parameter, 3);
        const auto second = Elements(old, saved, entry.parameter, 4);
        const auto is_of_entry = [&](const internal::ErrorPiece& piece) {
          return piece.in_bucket >= entry.range.begin &&
                 piece.in_bucket < entry.range.begin + entry.range.size;
        };
        const float summed = then.node_ranks == 0 ? 1.0f : static_cast<float>(then.node_ranks);
        for (const internal::ErrorPiece& piece : internal::PiecesOf(layout.own, self.rank)) {
          const auto begin = static_cast<size_t>(piece.in_bucket - entry.range.begin);
          for (size_t i = 0; is_of_entry(piece) && i < static_cast<size_t>(piece.size); ++i) {
            EXPECT_EQ(errors.own[static_cast<size_t>(piece.at) + i], own[begin + i] * summed);
            if (self.rank == 0 && own[begin + i] != 0) ++owned;
          }
        }
        for (const internal::ErrorPiece& piece : internal::PiecesOf(layout.second, self.rank)) {
          const auto begin = static_cast<size_t>(piece.in_bucket - entry.range.begin);
          for (size_t i = 0; is_of_entry(piece) && i < static_cast<size_t>(piece.size); ++i) {
            EXPECT_EQ(errors.second[static_cast<size_t>(piece.at) + i], second[begin + i]);
            if (self.rank == 0 && second[begin + i] != 0) ++compared;
          }
        }
        size_t used = 0;
        for (const internal::ErrorPiece& piece : layout.second.pieces) {
          const int64_t end = piece.in_bucket - entry.range.begin + piece.size;
          if (is_of_entry(piece)) used = std::max(used, static_cast<size_t>(end));
        }
        for (size_t i = used; i < second.size(); ++i) EXPECT_EQ(second[i], 0);
      }
    }
    loaded[static_cast<size_t>(self.rank)] = Capture(*zero, self).value();
    ToyTrainer trainer(*zero, self);
    trainer.step = 5;
    ASSERT_OK(trainer.Step());
    ASSERT_OK(zero->step_stream().Synchronize());
    self.AwaitOthers();
  });
  // And the same again where they are saved once more, but for a rounding of the mean.
  for (size_t p = 0; p < plan.parameters().size(); ++p) {
    const int parameter = static_cast<int>(p);
    if (!plan.parameter(parameter).spec.trainable) continue;
    for (const size_t array : {0, 1, 2, 4}) {
      EXPECT_EQ(Elements(plan, loaded, parameter, array), Elements(old, saved, parameter, array));
    }
    const auto before = Elements(old, saved, parameter, 3);
    const auto after = Elements(plan, loaded, parameter, 3);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(after[i], before[i], std::fabs(before[i]) * 0x1p-22);
    }
  }
  EXPECT_GT(owned, 0);
  EXPECT_EQ(compared > 0, method != GradientCompression::kTopK);
}

TEST(ExchangeTest, AnyNumberOfRanksGoesOnWithTheErrors) {
  for (const auto& [from, to] : {std::pair(4, 2), std::pair(2, 3), std::pair(3, 4)}) {
    for (const auto method : kGradientCompressions) ExpectToGoOn({from}, {to}, method);
  }
}

TEST(ExchangeTest, AnyNumberOfNodesGoesOnWithTheErrors) {
  constexpr RanksAndNodes kRuns[] = {{4, 2}, {3}, {6, 3}, {6, 2}, {4, 2}, {4}, {6, 3}};
  for (size_t i = 1; i < std::size(kRuns); ++i) {
    SCOPED_TRACE(absl::StrCat(kRuns[i - 1].ranks, " to ", kRuns[i].ranks, " ranks"));
    ExpectToGoOn(kRuns[i - 1], kRuns[i], GradientCompression::kOneBit);
  }
}

}  // namespace
}  // namespace brigade::zero
