// Exchanges between groups that have a whole state each: at every step nothing of what groups have
// summed is lost, also where the errors come from other ranks, groups, and slices.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/testing/tolerance.h"
#include "brigade/tests/zero/captured_state.h"
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

struct Layout {
  int ranks = 4;
  // 0: no groups.
  int shard_ranks = 0;
  int stage = 1;

  int sharers() const { return shard_ranks == 0 ? ranks : shard_ranks; }
  int groups() const { return ranks / sharers(); }
  // Ranks, or groups.
  int exchanging() const { return groups() > 1 ? groups() : ranks; }
};

std::string NameOf(const Layout& layout) {
  return absl::StrCat(layout.ranks, " ranks in groups of ", layout.shard_ranks, ", stage ",
                      layout.stage);
}

ZeroOptions OptionsOf(const Layout& layout, GradientCompression method) {
  ZeroOptions options;
  options.stage = layout.stage;
  options.shard_ranks = layout.shard_ranks;
  options.dtype = DType::kFloat16;
  options.bucket_elements = 1000;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 10;
  options.max_grad_norm = 2.0;
  options.gradient_compression = {.method = method, .rank = 2, .density = 0.03};
  return options;
}

Plan PlanOf(const Layout& layout) {
  return Plan::Create(ToyMatrices(), {.ranks = layout.sharers(),
                                      .dtype = DType::kFloat16,
                                      .bucket_elements = 1000,
                                      .shard_groups = layout.groups()})
      .value();
}

// The first element of each parameter among those of all, in the order of the spec.
std::vector<size_t> BeginsOf(const Plan& plan) {
  std::vector<size_t> begins = {0};
  for (const Parameter& each : plan.parameters()) {
    begins.push_back(begins.back() + static_cast<size_t>(each.spec.size));
  }
  return begins;
}

// A bucket's element among those of all parameters.
size_t IndexOf(const std::vector<size_t>& begins, const BucketEntry& entry, int64_t in_bucket) {
  return begins[static_cast<size_t>(entry.parameter)] +
         static_cast<size_t>(in_bucket - entry.range.begin);
}

// What ranks of the first group have saved of an array, by element of all parameters; those of
// frozen ones are 0.
std::vector<float> SavedOf(const Layout& layout, const std::vector<CapturedState>& states,
                           size_t array) {
  const Plan plan = PlanOf(layout);
  std::vector<float> values;
  for (const Parameter& p : plan.parameters()) {
    const Bucket& bucket = plan.bucket(p.bucket);
    const int64_t slice = plan.slice(bucket);
    for (int64_t i = p.begin; i < p.begin + p.spec.size; ++i) {
      values.push_back(0);
      if (!p.spec.trainable) continue;
      const std::string& bytes =
          states[static_cast<size_t>(i / slice)].arrays[static_cast<size_t>(p.bucket)][array];
      std::memcpy(&values.back(), bytes.data() + i % slice * sizeof(float), sizeof(float));
    }
  }
  return values;
}

std::vector<CapturedState> Train(const Layout& layout, GradientCompression method, int steps) {
  std::vector<CapturedState> saved(static_cast<size_t>(layout.ranks));
  OnThreads({.size = layout.ranks}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), OptionsOf(layout, method), self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    for (int step = 0; step < steps; ++step) ASSERT_OK(trainer.Step());
    saved[static_cast<size_t>(self.rank)] = Capture(*zero, self).value();
    self.AwaitOthers();
  });
  // All groups have the same.
  for (size_t rank = 0; rank < saved.size(); ++rank) {
    EXPECT_TRUE(saved[rank] == saved[rank % static_cast<size_t>(layout.sharers())]) << rank;
  }
  return saved;
}

// The state of a training with other ranks, by parameter.
absl::Status LoadFrom(ZeroOptimizer& zero, const Layout& from,
                      const std::vector<CapturedState>& saved) {
  const Plan& plan = zero.plan();
  const std::vector<size_t> begins = BeginsOf(plan);
  std::vector<std::vector<float>> arrays;
  for (int array = 0; array < zero.state_arrays(); ++array) {
    arrays.push_back(SavedOf(from, saved, static_cast<size_t>(array)));
  }
  return zero.LoadState(
      saved[0].step, [&](int bucket, int array, ElementRange range, void* values) {
        const Bucket& of = plan.bucket(bucket);
        std::memset(values, 0, static_cast<size_t>(range.size * StateWidth(of)));
        if (!of.trainable) return absl::OkStatus();
        const int64_t first = zero.rank() * plan.slice(of) + range.begin;
        for (const BucketEntry& entry : of.entries) {
          for (int64_t i = 0; i < entry.range.size; ++i) {
            const int64_t at = entry.range.begin + i - first;
            if (at < 0 || at >= range.size) continue;
            static_cast<float*>(values)[at] =
                arrays[static_cast<size_t>(array)][IndexOf(begins, entry, entry.range.begin + i)];
          }
        }
        return absl::OkStatus();
      });
}

// What a rank knows of the elements that it exchanges, 0 of the others.
struct Ledger {
  std::vector<double> input, output, own, sum;
};

Ledger LedgerOf(ZeroOptimizer& zero, const ZeroOptions& options, const Layout& layout,
                double multiplier) {
  const Plan& plan = zero.plan();
  const std::vector<size_t> begins = BeginsOf(plan);
  const auto& exchange = ZeroOptimizerTestPeer::Exchange(zero);
  Ledger ledger;
  for (auto* const values : {&ledger.input, &ledger.output, &ledger.own, &ledger.sum}) {
    values->resize(begins.back());
  }
  const bool in_groups = layout.groups() > 1;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const int index = static_cast<int>(b);
    const Bucket& bucket = plan.bucket(index);
    if (!bucket.trainable) continue;
    const int64_t slice_begin = in_groups ? zero.rank() * plan.slice(bucket) : 0;
    const void* const gradient = in_groups ? ZeroOptimizerTestPeer::SummedSlice(zero, index)
                                           : ZeroOptimizerTestPeer::OwnGradient(zero, index);
    const float* const mean =
        exchange.Mean(index) + internal::MeanBegin(plan, options, bucket, zero.rank());
    for (const auto& piece : internal::ExchangedPieces(plan, options, bucket, zero.rank())) {
      for (int64_t i = 0; i < piece.size; ++i) {
        const size_t at = IndexOf(begins, bucket.entries[piece.entry], piece.in_bucket + i);
        ledger.input[at] =
            Load(gradient, bucket.dtype, piece.in_bucket + i - slice_begin) * multiplier;
        ledger.output[at] = mean[piece.at + i];
      }
    }
    const auto errors = internal::ErrorLayoutOf(plan, options, bucket, zero.rank());
    const auto add = [&](std::vector<double>& to, const internal::ErrorPiece& piece,
                         const float* values) {
      for (const BucketEntry& entry : bucket.entries) {
        const bool is_of_entry = piece.in_bucket >= entry.range.begin &&
                                 piece.in_bucket < entry.range.begin + entry.range.size;
        for (int64_t i = 0; is_of_entry && i < piece.size; ++i) {
          to[IndexOf(begins, entry, piece.in_bucket + i)] += values[i];
        }
      }
    };
    // Pieces lie in one parameter each, but for parts of signs, which are cut there.
    const int me = in_groups ? zero.shard_group() : zero.rank();
    for (const auto& piece : internal::PiecesOf(errors.own, me)) {
      add(ledger.own, piece, exchange.ErrorsOf(index).own + piece.at);
    }
    for (const auto& piece : internal::PiecesOf(errors.second, me)) {
      // Factors are no errors.
      if (errors.second.parts == 1) break;
      add(ledger.sum, piece, exchange.ErrorsOf(index).second + piece.at);
    }
    for (const auto& piece : errors.plain) {
      add(ledger.own, piece, exchange.Slice(index, 0) + piece.in_bucket - slice_begin);
    }
  }
  return ledger;
}

// A training that has saved its errors, and one with other ranks that goes on with them. In each
// step: what has come out + mean of own errors + errors of sums = what there was + what went in.
void ExpectNothingToBeLost(const Layout& from, const Layout& to, GradientCompression method) {
  SCOPED_TRACE(absl::StrCat(Name(method), ": from ", NameOf(from), " to ", NameOf(to)));
  constexpr int kBefore = 4, kSteps = 5, kSkipped = 2;
  const std::vector<CapturedState> saved = Train(from, method, kBefore);
  const ZeroOptions options = OptionsOf(to, method);
  const bool has_sums = method == GradientCompression::kOneBit;
  std::vector<double> in, out;
  for (const float own : SavedOf(from, saved, 3)) in.push_back(own);
  if (has_sums) {
    const std::vector<float> sums = SavedOf(from, saved, 4);
    for (size_t i = 0; i < in.size(); ++i) in[i] += sums[i];
  }
  out.resize(in.size());
  double magnitude = 0, left_over = 0;
  std::vector<Ledger> ledgers(static_cast<size_t>(to.ranks));
  OnThreads({.size = to.ranks}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(LoadFrom(*zero, from, saved));
    ASSERT_OK(zero->step_stream().Synchronize());
    ToyTrainer trainer(*zero, self, {{.step = kBefore + kSkipped, .rank = 1}});
    trainer.step = kBefore;
    for (int step = -1; step < kSteps; ++step) {
      // At first what was loaded.
      kernels::StepState state = saved[0].step;
      if (step >= 0) {
        ASSERT_OK(trainer.Step());
        state = zero->controller().SaveState(zero->step_stream()).value();
        EXPECT_EQ(state.skip, step == kSkipped ? 1 : 0);
      }
      ledgers[static_cast<size_t>(self.rank)] = LedgerOf(*zero, options, to, state.grad_multiplier);
      self.AwaitOthers();
      const bool counts = step >= 0 && state.skip == 0;
      for (size_t i = 0; i < in.size() && self.rank == 0; ++i) {
        double left = 0;
        for (const Ledger& ledger : ledgers) {
          if (counts) {
            in[i] += ledger.input[i] / to.exchanging();
            out[i] += ledger.output[i] / to.exchanging();
          }
          left += ledger.own[i] / to.exchanging() + ledger.sum[i];
          magnitude = std::max({magnitude, std::fabs(ledger.own[i]), std::fabs(ledger.sum[i])});
        }
        magnitude = std::max({magnitude, std::fabs(in[i]), std::fabs(out[i]), 1e-3});
        EXPECT_NEAR(out[i] + left, in[i], RoundingError<float>(40 * kSteps, magnitude))
            << "step " << step << ", element " << i;
        left_over = std::max(left_over, std::fabs(left));
      }
      self.AwaitOthers();
    }
  });
  EXPECT_GT(left_over, 1e-3);
}

TEST(GroupExchangeTest, NothingIsLostBetweenGroupsAndFromOneNumberOfRanksToAnother) {
  constexpr std::pair<Layout, Layout> kRuns[] = {{{4, 0, 1}, {4, 2, 3}},
                                                 {{4, 2, 2}, {2, 0, 0}},
                                                 {{6, 3, 0}, {6, 2, 1}},
                                                 {{6, 2, 3}, {4, 2, 0}},
                                                 {{3, 1, 2}, {4, 2, 2}}};
  for (const auto& [from, to] : kRuns) {
    for (const GradientCompression method : kGradientCompressions) {
      ExpectNothingToBeLost(from, to, method);
    }
  }
}

// Rows that a slice cuts cross as they are, and what a load has left of them goes with the next
// step that counts, once.
TEST(GroupExchangeTest, ErrorsOfRowsThatSlicesCutAreSentOnce) {
  const Layout from = {4, 0, 1}, to = {4, 2, 3};
  const auto method = GradientCompression::kPowerSgd;
  const std::vector<CapturedState> saved = Train(from, method, 4);
  const ZeroOptions options = OptionsOf(to, method);
  OnThreads({.size = to.ranks}, [&](Rank& self) {
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(LoadFrom(*zero, from, saved));
    const auto left = [&] {
      EXPECT_OK(zero->step_stream().Synchronize());
      double sum = 0;
      for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
        const Bucket& bucket = zero->plan().buckets()[b];
        const auto errors = internal::ErrorLayoutOf(zero->plan(), options, bucket, zero->rank());
        const float* const slice =
            bucket.trainable ? ZeroOptimizerTestPeer::Exchange(*zero).Slice(static_cast<int>(b), 0)
                             : nullptr;
        const int64_t begin = zero->rank() * zero->plan().slice(bucket);
        for (const auto& piece : errors.plain) {
          for (int64_t i = 0; i < piece.size; ++i) {
            sum += std::fabs(slice[piece.in_bucket - begin + i]);
          }
        }
      }
      return sum;
    };
    const double loaded = left();
    EXPECT_GT(loaded, 0);
    ToyTrainer trainer(*zero, self, {{.step = 4, .rank = 1}});
    trainer.step = 4;
    ASSERT_OK(trainer.Step());
    EXPECT_EQ(left(), loaded) << "a skipped step";
    ASSERT_OK(trainer.Step());
    EXPECT_EQ(left(), 0);
    self.AwaitOthers();
  });
}

TEST(GroupExchangeTest, WhatGroupsCannotExchangeIsAnErrorOnAll) {
  const auto expect = [](const char* text, auto change) {
    OnThreads({.size = 4}, [&](Rank& self) {
      ZeroOptions options = OptionsOf({4, 2, 1}, GradientCompression::kOneBit);
      change(options);
      EXPECT_THAT(CreateZero(ToyMatrices(), options, self),
                  StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(text)));
      self.AwaitOthers();
    });
  };
  expect("shard_ranks is 2, and local_step_clipper 16; the ranks of a group sum gradients",
         [](ZeroOptions& options) {
           options.gradient_compression.reset();
           options.stage = 0;
           options.optimizer.kind = optim::OptimizerKind::kZeroOneAdam;
           options.optimizer.zero_one.local_step_clipper = 16;
         });
  expect("shard_ranks is 2, and node_ranks 2; what groups exchange goes in one hop",
         [](ZeroOptions& options) { options.node_ranks = 2; });
  expect("shard_ranks is 4, which is all ranks, and stage 3 has no memory for whole gradients",
         [](ZeroOptions& options) { options.shard_ranks = 4, options.stage = 3; });
  expect("shard_ranks is 4, which is all ranks, and quantized_gradients int8",
         [](ZeroOptions& options) {
           options.shard_ranks = 4;
           options.quantized_gradients = kernels::QuantFormat::kInt8;
         });
}

}  // namespace
}  // namespace brigade::zero
