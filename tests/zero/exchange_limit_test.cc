// What is too large to be exchanged: all ranks skip the step, on every engine, and nothing becomes
// NaN.

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::CreateEngineFn;
using collectives::Rank;
using collectives::RanksOptions;
using internal::kExchangeLimit;

struct LimitCase {
  std::string name;
  ZeroOptions options;
  int ranks = 3;

  friend void PrintTo(const LimitCase& c, std::ostream* out) { *out << c.name; }
};

// Exchanges from the third step on, without clipping.
std::vector<LimitCase> LimitCases() {
  using optim::OptimizerKind;
  std::vector<LimitCase> cases;
  const auto add = [&](const std::string& name, int stage, auto change, int ranks = 3) {
    ZeroOptions options;
    options.stage = stage;
    options.bucket_elements = 1000;
    change(options);
    cases.push_back({name, options, ranks});
  };
  const auto with = [](GradientCompression method) {
    return [method](ZeroOptions& options) {
      options.gradient_compression = {
          .method = method, .start_step = 2, .rank = 2, .density = 0.03};
    };
  };
  const auto by = [](OptimizerKind kind) {
    return [kind](ZeroOptions& options) {
      options.optimizer.kind = kind;
      options.optimizer.freeze_step = 2;
      options.optimizer.zero_one = {.var_freeze_step = 2, .local_step_clipper = 1};
    };
  };
  add("OneBit", 1, with(GradientCompression::kOneBit));
  add("PowerSgd", 2, with(GradientCompression::kPowerSgd));
  add("TopK", 0, with(GradientCompression::kTopK));
  add("OneBitAdam", 2, by(OptimizerKind::kOneBitAdam));
  add("OneBitLamb", 0, by(OptimizerKind::kOneBitLamb));
  add("ZeroOneAdam", 1, by(OptimizerKind::kZeroOneAdam));
  add(
      "OneBitInNodes", 1,
      [&](ZeroOptions& options) {
        with(GradientCompression::kOneBit)(options);
        options.node_ranks = 2;
      },
      4);
  add(
      "PowerSgdInGroups", 3,
      [&](ZeroOptions& options) {
        with(GradientCompression::kPowerSgd)(options);
        options.shard_ranks = 2;
      },
      4);
  add(
      "OneBitAdamInGroups", 1,
      [&](ZeroOptions& options) {
        by(OptimizerKind::kOneBitAdam)(options);
        options.shard_ranks = 2;
      },
      4);
  return cases;
}

enum class EngineKind : uint8_t { kThreads, kNccl, kGloo };

CreateEngineFn EnginesOf(EngineKind kind, const RanksOptions& ranks) {
  switch (kind) {
    case EngineKind::kThreads:
      return collectives::ThreadEngines(ranks);
    case EngineKind::kNccl:
      return collectives::NcclEngines(ranks);
    case EngineKind::kGloo:
      return collectives::testing::GlooEngines(ranks);
  }
  return {};
}

// Sets all own errors of a rank; the last one to another value.
void SetErrors(ZeroOptimizer& zero, float last) {
  for (size_t b = zero.plan().buckets().size(); b-- > 0;) {
    const Bucket& bucket = zero.plan().buckets()[b];
    if (!bucket.trainable) continue;
    const auto errors = ZeroOptimizerTestPeer::Exchange(zero).ErrorsOf(static_cast<int>(b));
    const auto layout = internal::ErrorLayoutOf(zero.plan(), zero.options(), bucket, zero.rank());
    if (layout.own.size == 0) continue;
    std::fill_n(errors.own, layout.own.size, 0.0f);
    errors.own[layout.own.size - 1] = std::exchange(last, 0.0f);
  }
}

using EngineAndCase = std::tuple<EngineKind, LimitCase>;
class ExchangeLimitTest : public collectives::NcclTest,
                          public ::testing::WithParamInterface<EngineAndCase> {
 protected:
  // Three steps, and a fourth one in which rank 0 alone has that last error, and rank 1 alone that
  // gradient: whether it is skipped.
  static void ExpectSkipped(bool is_skipped, float error, float gradient) {
    const auto& [kind, c] = GetParam();
    const RanksOptions ranks = {.size = c.ranks};
    collectives::OnRanks(ranks, EnginesOf(kind, ranks), [&, &c = c](Rank& self) {
      auto zero = CreateZero(ToyMatrices(), c.options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      std::vector<Injection> injections;
      if (gradient != 0) injections = {{.step = 3, .rank = 1, .value = gradient}};
      ToyTrainer trainer(*zero, self, injections);
      for (int step = 0; step < 3; ++step) ASSERT_OK(trainer.Step());
      const CapturedState before = Capture(*zero, self).value();
      ASSERT_EQ(before.step.skip, 0);
      if (error != 0) SetErrors(*zero, self.rank == 0 ? error : 0.0f);
      const std::string errors = LeftOut(*zero);
      ASSERT_OK(trainer.Step());
      ASSERT_OK(zero->step_stream().Synchronize());
      EXPECT_EQ(LeftOut(*zero) == errors, is_skipped || errors.empty());
      const CapturedState after = Capture(*zero, self).value();
      EXPECT_EQ(after.step.skip, is_skipped ? 1 : 0);
      EXPECT_EQ(after.step.step, before.step.step + (is_skipped ? 0 : 1));
      // All but the mean of errors.
      for (size_t b = 0; b < after.arrays.size() && is_skipped; ++b) {
        for (size_t array = 0; array < after.arrays[b].size(); ++array) {
          const bool is_mean = static_cast<int>(array) == zero->state_arrays() - 2;
          EXPECT_TRUE(is_mean || after.arrays[b][array] == before.arrays[b][array])
              << "bucket " << b << ", array " << array;
        }
      }
      // The next one counts.
      SetErrors(*zero, 0);
      ASSERT_OK(trainer.Step());
      EXPECT_EQ(Capture(*zero, self).value().step.step, after.step.step + 1);
      self.AwaitOthers();
    });
  }
};

TEST_P(ExchangeLimitTest, ErrorsThatAreTooLargeSkipTheStepOnAllRanks) {
  for (const float error : {static_cast<float>(kExchangeLimit), -0x1.fffffep63f}) {
    SCOPED_TRACE(error);
    ExpectSkipped(true, error, 0);
  }
}

TEST_P(ExchangeLimitTest, GradientsThatAreTooLargeSkipTheStepOnAllRanks) {
  for (const float gradient : {0x1p50f, -0x1p63f}) {
    SCOPED_TRACE(gradient);
    ExpectSkipped(true, 0, gradient);
  }
}

TEST_P(ExchangeLimitTest, WhatIsLargeAndFitsIsExchanged) {
  // By moments of 0/1 Adam, too, which are errors over a rate.
  constexpr float fits = 0x1p22f;
  ExpectSkipped(false, fits, 0);
  ExpectSkipped(false, 0, fits);
}

std::vector<EngineAndCase> EnginesAndCases() {
  std::vector<EngineAndCase> parameters;
  for (const LimitCase& c : LimitCases()) {
    parameters.emplace_back(EngineKind::kThreads, c);
    parameters.emplace_back(EngineKind::kNccl, c);
    // Seconds each.
    if (c.name == "OneBit" || c.name == "PowerSgdInGroups") {
      parameters.emplace_back(EngineKind::kGloo, c);
    }
  }
  return parameters;
}

std::string NameOf(const ::testing::TestParamInfo<EngineAndCase>& info) {
  const char* const engines[] = {"Threads", "Nccl", "Gloo"};
  return absl::StrCat(engines[static_cast<int>(std::get<0>(info.param))],
                      std::get<1>(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(Cases, ExchangeLimitTest, ::testing::ValuesIn(EnginesAndCases()), NameOf);

}  // namespace
}  // namespace brigade::zero
