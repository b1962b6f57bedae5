// Errors of exchanges: what they keep, and when.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/layout.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using precision::DType;

ZeroOptions Options(int stage) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = DType::kFloat16;
  options.bucket_elements = 1000;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 10;
  options.max_grad_norm = 2.0;
  options.gradient_compression = CompressionOptions();
  return options;
}

// The bytes of a rank's errors of all buckets.
std::string ErrorsOf(ZeroOptimizer& zero, int ranks) {
  std::string bytes;
  const internal::GradientExchange& exchange = ZeroOptimizerTestPeer::Exchange(zero);
  for (size_t b = 0; b < zero.plan().buckets().size(); ++b) {
    const Bucket& bucket = zero.plan().buckets()[b];
    if (!bucket.trainable) continue;
    const auto errors = exchange.Errors(static_cast<int>(b));
    const auto count = static_cast<size_t>(internal::ExchangedElements(bucket));
    const auto part = (count + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks);
    bytes.append(reinterpret_cast<const char*>(errors.local), count * sizeof(float));
    bytes.append(reinterpret_cast<const char*>(errors.sum), part * sizeof(float));
  }
  return bytes;
}

TEST(ExchangeTest, ASkippedStepKeepsEveryBitOfErrorsAndState) {
  constexpr int kRanks = 3;
  for (const int stage : {0, 1, 2}) {
    OnThreads({.size = kRanks}, [&](Rank& self) {
      auto zero = CreateZero(ToyModel(), Options(stage), self).value();
      ASSERT_OK(InitializeToy(*zero));
      // One rank alone overflows.
      ToyTrainer trainer(*zero, self, {{.step = 4, .rank = 1}});
      for (int step = 0; step < 4; ++step) ASSERT_OK(trainer.Step());
      CapturedState before = Capture(*zero, self).value();
      const std::string errors = ErrorsOf(*zero, kRanks);
      EXPECT_NE(errors, std::string(errors.size(), '\0'));
      ASSERT_OK(trainer.Step());
      CapturedState after = Capture(*zero, self).value();
      EXPECT_EQ(after.step.skip, 1);
      EXPECT_EQ(after.step.step, before.step.step);
      EXPECT_EQ(after.arrays, before.arrays);
      EXPECT_EQ(ErrorsOf(*zero, kRanks), errors);
      // The next one counts.
      ASSERT_OK(trainer.Step());
      EXPECT_EQ(Capture(*zero, self).value().step.step, before.step.step + 1);
      EXPECT_NE(ErrorsOf(*zero, kRanks), errors);
      self.AwaitOthers();
    });
  }
}

TEST(ExchangeTest, ExactGradientsComeBeforeTheStartWithoutErrors) {
  OnThreads({.size = 2}, [&](Rank& self) {
    ZeroOptions options = Options(1);
    options.gradient_compression->start_step = 3;
    auto zero = CreateZero(ToyModel(), options, self).value();
    options.gradient_compression.reset();
    auto plain = CreateZero(ToyModel(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ASSERT_OK(InitializeToy(*plain));
    // A step that is skipped counts.
    const std::vector<Injection> injections = {{.step = 1}};
    ToyTrainer trainer(*zero, self, injections), other(*plain, self, injections);
    for (int step = 0; step < 4; ++step) {
      ASSERT_OK(trainer.Step());
      ASSERT_OK(other.Step());
      const bool same = Capture(*zero, self).value() == Capture(*plain, self).value();
      EXPECT_EQ(same, step < 3) << step;
      const std::string errors = ErrorsOf(*zero, 2);
      EXPECT_EQ(errors == std::string(errors.size(), '\0'), step < 3) << step;
    }
    self.AwaitOthers();
  });
}

// Sum over steps of what updates read + mean over ranks of local errors + errors of the sums = sum
// over steps of the mean of what went in.
TEST(ExchangeTest, NothingIsLostAtAnyStep) {
  constexpr int kRanks = 3, kSteps = 12;
  for (const int stage : {0, 1, 2}) {
    // [rank][element of all buckets].
    std::vector<std::vector<double>> inputs(kRanks), locals(kRanks), outputs(kRanks), sums(kRanks);
    std::vector<double> in, out;
    double magnitude = 0;
    OnThreads({.size = kRanks}, [&](Rank& self) {
      const auto me = static_cast<size_t>(self.rank);
      auto zero = CreateZero(ToyModel(), Options(stage), self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self, {{.step = 5, .rank = 1}});
      for (int step = 0; step < kSteps; ++step) {
        ASSERT_OK(trainer.Step());
        const CapturedState state = Capture(*zero, self).value();
        inputs[me].clear(), locals[me].clear(), outputs[me].clear(), sums[me].clear();
        for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
          const int index = static_cast<int>(b);
          const Bucket& bucket = zero->plan().bucket(index);
          if (!bucket.trainable) continue;
          const auto& exchange = ZeroOptimizerTestPeer::Exchange(*zero);
          const void* const own = ZeroOptimizerTestPeer::OwnGradient(*zero, index);
          int64_t at = 0;
          const int64_t part = (internal::ExchangedElements(bucket) + kRanks - 1) / kRanks;
          for (const BucketEntry& entry : bucket.entries) {
            for (int64_t i = 0; i < entry.range.size; ++i, ++at) {
              inputs[me].push_back(Load(own, bucket.dtype, entry.range.begin + i) *
                                   state.step.grad_multiplier);
              outputs[me].push_back(exchange.Mean(index)[at]);
              locals[me].push_back(exchange.Errors(index).local[at]);
              sums[me].push_back(at / part == self.rank ? exchange.Errors(index).sum[at % part]
                                                        : 0.0);
            }
          }
        }
        self.AwaitOthers();
        if (self.rank == 0) {
          in.resize(inputs[0].size());
          out.resize(inputs[0].size());
          for (size_t i = 0; i < in.size(); ++i) {
            double left = 0;
            for (size_t r = 0; r < kRanks; ++r) {
              if (state.step.skip == 0) in[i] += inputs[r][i] / kRanks;
              left += locals[r][i] / kRanks + sums[r][i];
              if (state.step.skip == 0) {
                EXPECT_EQ(outputs[r][i], outputs[0][i]);
              }
              magnitude = std::max({magnitude, std::fabs(locals[r][i]), std::fabs(sums[r][i])});
            }
            if (state.step.skip == 0) out[i] += outputs[0][i];
            magnitude = std::max({magnitude, std::fabs(in[i]), std::fabs(out[i])});
            // A few roundings to fp32 in each step.
            EXPECT_NEAR(out[i] + left, in[i], 16 * kSteps * magnitude * 0x1p-24)
                << "stage " << stage << ", step " << step << ", element " << i;
          }
        }
        EXPECT_EQ(state.step.skip, step == 5 ? 1 : 0);
        self.AwaitOthers();
      }
    });
  }
}

}  // namespace
}  // namespace brigade::zero
