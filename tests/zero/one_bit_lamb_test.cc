// Training with 1-bit LAMB: the specification's bits in stages 0 to 2, wherever the cuts between
// ranks are, over skipped steps, clipping and states that are loaded; and what it refuses.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/golden.h"
#include "brigade/tests/zero/saved_elements.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "brigade/zero/plan/layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::OnThreads;
using collectives::Rank;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kOneBitLamb = optim::OptimizerKind::kOneBitLamb;

GoldenCase Case(int ranks, DType dtype) {
  GoldenCase c = {ranks, dtype, kOneBitLamb};
  c.bucket_elements = 30'000;
  c.freeze_step = 12;
  return c;
}

// Tensors of three tiles, and of one, between slices of one tile, of two and of more.
std::vector<GoldenCase> Cases() {
  std::vector<GoldenCase> cases = {Case(1, DType::kBFloat16), Case(2, DType::kFloat16),
                                   Case(4, DType::kBFloat16)};
  // With what a state holds: means of ratios; what is frozen next; scales, factors and errors.
  for (const int reload_at : {5, 12, 31}) {
    GoldenCase c = Case(reload_at == 31 ? 4 : 2, DType::kBFloat16);
    c.reload_at = reload_at;
    cases.push_back(c);
  }
  GoldenCase c = Case(1, DType::kFloat32);
  c.reload_at = 31;
  cases.push_back(c);
  c = Case(2, DType::kBFloat16);
  c.micro_batches = 3;
  cases.push_back(c);
  c = Case(2, DType::kFloat32);
  c.weight_decay = 0.0;
  cases.push_back(c);
  // A tensor in each bucket, whose slices many ranks have nothing in.
  c = Case(4, DType::kFloat32);
  c.bucket_elements = 1;
  cases.push_back(c);
  // The freeze comes with a step that is skipped, and is made again where the state is loaded.
  c = Case(2, DType::kFloat16);
  c.freeze_step = 7;
  cases.push_back(c);
  c.reload_at = 8;
  cases.push_back(c);
  c = Case(4, DType::kBFloat16);
  c.node_ranks = 2;
  c.reload_at = 21;
  cases.push_back(c);
  return cases;
}

class OneBitLambTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(OneBitLambTest, HasTheSpecificationsBitsInStages0To2) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

INSTANTIATE_TEST_SUITE_P(Cases, OneBitLambTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return ToString(info.param); });

ZeroOptions Options(int stage) {
  ZeroOptions options = OptionsOf(Case(2, DType::kFloat16), stage);
  options.optimizer.freeze_step = 2;
  // The first step counts.
  options.loss_scaler.initial_scale_power = 10;
  return options;
}

TEST(OneBitLambOptionsTest, RefuseWhatItCannotStandBeside) {
  const auto refuses = [](auto change, const char* text) {
    ZeroOptions options = Options(2);
    change(options);
    EXPECT_THAT(Validate(options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  EXPECT_OK(Validate(Options(2)));
  refuses([](ZeroOptions& o) { o.stage = 3; }, "the optimizer is OneBitLamb, but stage 3");
  refuses([](ZeroOptions& o) { o.model_ranks = 2; },
          "the optimizer is OneBitLamb, but model_ranks is 2");
  refuses([](ZeroOptions& o) { o.gradient_compression.emplace(); },
          "the optimizer is OneBitLamb, but gradient_compression is given");
  refuses([](ZeroOptions& o) { o.offload.optimizer_state = device::Tier::kHost; },
          "the optimizer is OneBitLamb, but offload.optimizer_state is host");
  refuses([](ZeroOptions& o) { o.optimizer.freeze_step = 0; },
          "freeze_step is 0, must be 1 or more of OneBitLamb");
  refuses([](ZeroOptions& o) { o.optimizer.one_bit_lamb.coeff_beta = 1; }, "coeff_beta is 1");
  refuses([](ZeroOptions& o) { o.optimizer.one_bit_lamb.factor_max = 0; }, "factor_max is 0");
  refuses([](ZeroOptions& o) { o.optimizer.one_bit_lamb.factor_min = 5; },
          "factor_min is 5, must be more than 0, to factor_max");
  refuses([](ZeroOptions& o) { o.optimizer.one_bit_lamb.factor_threshold = -0.5; },
          "factor_threshold is -0.5");
  refuses([](ZeroOptions& o) { o.optimizer.groups[0].min_trust = 11; }, "min_trust");
}

TEST(OneBitLambOptionsTest, RefuseTensorsWithoutRoomForTheirNumbers) {
  OnThreads({.size = 2}, [](Rank& self) {
    ModelSpec model = ModelOf(kOneBitLamb);
    model[0].parameters.push_back({"temperature", 2});
    EXPECT_THAT(CreateZero(model, Options(1), self).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"temperature\" has 2")));
  });
}

Plan PlanOf(int ranks) {
  return Plan::Create(ModelOf(kOneBitLamb), {.ranks = ranks,
                                             .dtype = DType::kFloat16,
                                             .bucket_elements = 30'000,
                                             .tile_elements = optim::TensorTile(kOneBitLamb)})
      .value();
}

// From 4 ranks in stage 1 to 2 in stage 2, in the warm-up and behind it: all that is saved is there
// by element, and the numbers of tensors count: the two go on to the same ratios' means.
TEST(OneBitLambStateTest, GoesOnWithOtherRanks) {
  for (const int steps : {2, 6}) {
    SCOPED_TRACE(steps);
    std::vector<CapturedState> saved(4), loaded(2);
    OnThreads({.size = 4}, [&](Rank& self) {
      auto zero = CreateZero(ModelOf(kOneBitLamb), Options(1), self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      for (int step = 0; step < steps; ++step) ASSERT_OK(trainer.Step());
      EXPECT_EQ(zero->state_arrays(), 7);
      saved[static_cast<size_t>(self.rank)] = Capture(*zero, self).value();
      self.AwaitOthers();
    });
    const Plan old = PlanOf(4), plan = PlanOf(2);
    OnThreads({.size = 2}, [&](Rank& self) {
      auto zero = CreateZero(ModelOf(kOneBitLamb), Options(2), self).value();
      ASSERT_OK(LoadElements(old, saved, *zero));
      loaded[static_cast<size_t>(self.rank)] = Capture(*zero, self).value();
      const auto numbers = ZeroOptimizerTestPeer::Numbers(*zero);
      size_t tensor = 0;
      for (const Bucket& bucket : plan.buckets()) {
        if (!bucket.trainable) continue;
        for (const BucketEntry& entry : bucket.entries) {
          const kernels::OneBitLambNumbers& of = numbers[tensor++];
          if (entry.range.size == 0) continue;
          const auto kept = Elements(old, saved, entry.parameter, 4);
          EXPECT_EQ(of.ratio, kept[0]);
          EXPECT_EQ(of.scale, kept[1]);
          EXPECT_EQ(of.factor, kept[2]);
          EXPECT_GT(of.ratio, 0);
          EXPECT_EQ(of.scale > 0, steps > 2);
        }
      }
      ToyTrainer trainer(*zero, self);
      trainer.step = steps;
      ASSERT_OK(trainer.Step());
      ASSERT_OK(zero->step_stream().Synchronize());
      self.AwaitOthers();
    });
    for (size_t p = 0; p < plan.parameters().size(); ++p) {
      const int parameter = static_cast<int>(p);
      if (!plan.parameter(parameter).spec.trainable) continue;
      for (const size_t array : {0, 1, 2, 3, 4, 6}) {
        const auto before = Elements(old, saved, parameter, array);
        const auto after = Elements(plan, loaded, parameter, array);
        EXPECT_TRUE(before.empty() ||
                    std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0)
            << "parameter " << p << ", array " << array;
      }
    }
  }
}

// Of first moments times their tensors' scales: what came of all steps and what is left out now is
// what went in. Each step's own moment is made of what all have had, which is exact.
TEST(OneBitLambErrorTest, NothingIsLostAtAnyStep) {
  constexpr int kSteps = 10, kRanks = 3;
  // [rank][element]
  std::vector<std::vector<double>> sent(kRanks), local(kRanks), sums(kRanks);
  std::vector<double> in, out;
  double magnitude = 0;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    const auto me = static_cast<size_t>(self.rank);
    ZeroOptions options = Options(1);
    auto zero = CreateZero(ModelOf(kOneBitLamb), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = 5, .rank = 1}});
    std::vector<float> moments;
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_OK(trainer.Step());
      const kernels::StepState state = zero->controller().SaveState(zero->step_stream()).value();
      const bool counts = step > 2 && state.skip == 0;
      sent[me].clear(), local[me].clear(), sums[me].clear();
      std::vector<float> next;
      std::vector<double> means;
      size_t tensor = 0;
      for (size_t b = 0; b < zero->plan().buckets().size() && step >= 2; ++b) {
        const int index = static_cast<int>(b);
        const Bucket& bucket = zero->plan().bucket(index);
        if (!bucket.trainable) continue;
        const auto& exchange = ZeroOptimizerTestPeer::Exchange(*zero);
        const void* const own = ZeroOptimizerTestPeer::OwnGradient(*zero, index);
        const auto layout = internal::ErrorLayoutOf(zero->plan(), options, bucket);
        const auto errors = exchange.ErrorsOf(index);
        const auto by_element = [&](const internal::ErrorArray& array, const float* values) {
          std::vector<double> elements(static_cast<size_t>(bucket.size));
          for (const internal::ErrorPiece& piece : internal::PiecesOf(array, self.rank)) {
            std::copy_n(values + piece.at, piece.size, elements.begin() + piece.in_bucket);
          }
          return elements;
        };
        const auto of_own = by_element(layout.own, errors.own);
        const auto of_sums = by_element(layout.second, errors.second);
        int64_t at = 0;
        for (const BucketEntry& entry : bucket.entries) {
          const double scale = ZeroOptimizerTestPeer::Numbers(*zero)[tensor++].scale;
          for (int64_t i = entry.range.begin; i < entry.range.begin + entry.range.size; ++i) {
            const float m = exchange.Mean(index)[at++];
            next.push_back(m);
            if (counts) {
              const double g = Load(own, bucket.dtype, i) * state.grad_multiplier;
              const double before = moments[next.size() - 1];
              sent[me].push_back((0.9 * before + 0.1 * g) * scale);
            }
            means.push_back(m * scale);
            local[me].push_back(of_own[static_cast<size_t>(i)]);
            sums[me].push_back(of_sums[static_cast<size_t>(i)]);
          }
        }
      }
      if (state.skip == 0) moments = next;
      self.AwaitOthers();
      if (self.rank == 0 && step >= 2) {
        // What is left out behind the first such step is where the sums begin.
        in.resize(means.size()), out.resize(means.size());
        for (size_t i = 0; i < means.size(); ++i) {
          double left = 0;
          for (size_t r = 0; r < kRanks; ++r) {
            left += local[r][i] / kRanks + sums[r][i];
            if (counts) in[i] += sent[r][i] / kRanks;
            magnitude = std::max({magnitude, std::fabs(local[r][i]), std::fabs(sums[r][i])});
          }
          if (step == 2) in[i] = left;
          if (counts) out[i] += means[i];
          magnitude = std::max({magnitude, std::fabs(in[i]), std::fabs(out[i])});
          // A few roundings to fp32 in each step.
          ASSERT_NEAR(out[i] + left, in[i], 32 * kSteps * magnitude * 0x1p-24)
              << "step " << step << ", element " << i;
        }
      }
      EXPECT_EQ(state.skip, step == 5 ? 1 : 0);
      self.AwaitOthers();
    }
  });
  EXPECT_GT(magnitude, 0);
}

}  // namespace
}  // namespace brigade::zero
