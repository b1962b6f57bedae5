// 0/1 Adam beside its bits (golden_exchange_test): what each step sends and what memory it takes,
// local steps and meetings, what is lost of what ranks move, and what a step that is skipped or
// cancelled leaves.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/sign_pack/sign_pack_math.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/exchange_layout.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/memory_model.h"
#include "brigade/zero/plan/traffic.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using precision::DType;

constexpr double kLearningRate = 0.01;

// Second moments stay from the fourth step on. Meetings are then the steps 4, 5, 6, 8, 12, 16...
constexpr optim::ZeroOneSchedule kLocalSteps = {
    .var_freeze_step = 3, .var_update_scaler = 2, .local_step_scaler = 2, .local_step_clipper = 4};

ZeroOptions Options(int stage, const optim::ZeroOneSchedule& schedule, DType dtype) {
  ZeroOptions options;
  options.stage = stage;
  options.dtype = dtype;
  options.optimizer.kind = optim::OptimizerKind::kZeroOneAdam;
  options.optimizer.zero_one = schedule;
  options.optimizer.groups[0].lr = kLearningRate;
  options.bucket_elements = 1000;
  options.loss_scaler = optim::LossScaler::Dynamic();
  options.loss_scaler.initial_scale_power = 10;
  options.max_grad_norm = 2.0;
  return options;
}

// What a rank has of a bucket: the master, moments, errors, and what local steps have.
std::string BytesOf(ZeroOptimizer& zero, const ZeroOptions& options, int index) {
  const Bucket& bucket = zero.plan().bucket(index);
  std::string bytes;
  const auto append = [&](const float* values, int64_t count) {
    bytes.append(reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(float));
  };
  for (const int array : {0, 1, 2}) {
    const auto values = zero.StateArray(index, array).value();
    append(values.data(), static_cast<int64_t>(values.size()));
  }
  const auto& exchange = ZeroOptimizerTestPeer::Exchange(zero);
  const auto layout = internal::ErrorLayoutOf(zero.plan(), options, bucket);
  const auto errors = exchange.ErrorsOf(index);
  append(errors.own, layout.own.size);
  append(errors.second, layout.second.size);
  if (!options.has_local_steps()) return bytes;
  append(exchange.MovesOf(index), internal::ExchangedElements(bucket));
  append(exchange.AgreedOf(index), bucket.size);
  return bytes;
}

std::string AllBytes(ZeroOptimizer& zero, const ZeroOptions& options) {
  EXPECT_OK(zero.step_stream().Synchronize());
  std::string bytes;
  for (size_t b = 0; b < zero.plan().buckets().size(); ++b) {
    if (!zero.plan().buckets()[b].trainable) continue;
    bytes += BytesOf(zero, options, static_cast<int>(b));
  }
  return bytes;
}

TEST(ZeroOneAdamTest, EachStepSendsWhatTheModelSaysOfIt) {
  constexpr int kSteps = 24;
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2}) {
      OnThreads({.size = ranks}, [&](Rank& self) {
        optim::ZeroOneSchedule schedule = kLocalSteps;
        schedule.var_freeze_step = 9;
        if (stage > 0) schedule.local_step_clipper = 1;
        const ZeroOptions options = Options(stage, schedule, DType::kBFloat16);
        auto zero = CreateZero(ToyMatrices(), options, self).value();
        ASSERT_OK(InitializeToy(*zero));
        ToyTrainer trainer(*zero, self);
        int64_t reduced = 0, signs = 0, alone = 0;
        for (int step = 0; step < kSteps; ++step) {
          const Traffic before = zero->traffic();
          ASSERT_OK(trainer.Step());
          ASSERT_OK(zero->step_stream().Synchronize());
          const Traffic after = zero->traffic();
          const Traffic wanted =
              TrafficOfStep(zero->plan(), options, *self.communicator, {}, step).value();
          EXPECT_EQ(after.gradients - before.gradients, wanted.gradients) << step;
          EXPECT_EQ(after.parameters - before.parameters, wanted.parameters) << step;
          EXPECT_EQ(after.scalars - before.scalars, wanted.scalars) << step;
          // By hand: 16 bytes to each other rank for each type of gradients.
          const auto lists =
              internal::GradientLists(zero->plan(), options, [](int) { return nullptr; });
          EXPECT_EQ(wanted.scalars, 16 * (ranks - 1) * static_cast<int64_t>(lists.size())) << step;
          switch (optim::StepOf(schedule, step)) {
            case optim::ZeroOneStep::kVariance:
              reduced = wanted.gradients;
              break;
            case optim::ZeroOneStep::kSigns:
            case optim::ZeroOneStep::kMeeting:
              signs = wanted.gradients;
              break;
            case optim::ZeroOneStep::kLocal:
              EXPECT_EQ(wanted.gradients + wanted.parameters, 0) << step;
              ++alone;
              break;
          }
        }
        EXPECT_EQ(alone > 0, stage == 0);
        // By hand: of each rank's part the signs, to and fro.
        int64_t messages = 0;
        for (const Bucket& bucket : zero->plan().buckets()) {
          const int64_t count = internal::ExchangedElements(bucket);
          const int64_t part = (count + ranks - 1) / ranks;
          if (bucket.trainable) messages += 2 * (ranks - 1) * kernels::SignBytes(part);
        }
        EXPECT_EQ(signs, messages);
        EXPECT_GE(reduced, signs);
        self.AwaitOthers();
      });
    }
  }
}

TEST(ZeroOneAdamTest, LocalStepsTakeTheMemoryThatTheModelNames) {
  const Plan plan = Plan::Create(ToyMatrices(), {3, DType::kBFloat16, 1000}).value();
  const auto bytes = [&](const ZeroOptions& options, const char* name) {
    int64_t sum = 0;
    for (const MemoryTerm& term : MemoryOf(plan, options))
      sum += term.name == name ? term.bytes : 0;
    return sum;
  };
  int64_t padded = 0, elements = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (!bucket.trainable) continue;
    padded += bucket.size;
    for (const BucketEntry& entry : bucket.entries) elements += entry.range.size;
  }
  const ZeroOptions alone = Options(0, kLocalSteps, DType::kBFloat16);
  EXPECT_EQ(bytes(alone, "weights of the last meeting"), 4 * padded);
  EXPECT_EQ(bytes(alone, "moves since the last meeting"), 4 * elements);
  EXPECT_EQ(bytes(alone, "first moments of all ranks"), 0);
  optim::ZeroOneSchedule meets = kLocalSteps;
  meets.local_step_clipper = 1;
  for (const int stage : {0, 1, 2}) {
    const ZeroOptions options = Options(stage, meets, DType::kBFloat16);
    EXPECT_EQ(bytes(options, "weights of the last meeting"), 0);
    EXPECT_EQ(bytes(options, "moves since the last meeting"), 0);
    EXPECT_EQ(bytes(options, "first moments of all ranks"), stage == 0 ? 0 : 4 * elements);
  }
}

// The masters of all ranks are those of rank 0.
class Masters {
 public:
  explicit Masters(int ranks) : of_rank_(static_cast<size_t>(ranks)) {}

  // A call of all ranks.
  bool AreTheSame(ZeroOptimizer& zero, Rank& self) {
    EXPECT_OK(zero.step_stream().Synchronize());
    std::string& mine = of_rank_[static_cast<size_t>(self.rank)];
    mine.clear();
    for (size_t b = 0; b < zero.plan().buckets().size(); ++b) {
      if (!zero.plan().buckets()[b].trainable) continue;
      const auto values = zero.StateArray(static_cast<int>(b), 0).value();
      mine.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    self.AwaitOthers();
    const bool same = mine == of_rank_[0];
    self.AwaitOthers();
    return same;
  }

 private:
  std::vector<std::string> of_rank_;
};

TEST(ZeroOneAdamTest, RanksHaveWeightsOfTheirOwnBetweenMeetings) {
  constexpr int kRanks = 3;
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    Masters masters(kRanks);
    OnThreads({.size = kRanks}, [&](Rank& self) {
      auto zero = CreateZero(ToyMatrices(), Options(0, kLocalSteps, dtype), self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      int alone = 0;
      for (int step = 0; step < 24; ++step) {
        ASSERT_OK(trainer.Step());
        const bool is_local = optim::StepOf(kLocalSteps, step) == optim::ZeroOneStep::kLocal;
        EXPECT_EQ(masters.AreTheSame(*zero, self), !is_local || self.rank == 0) << step;
        alone += is_local ? 1 : 0;
      }
      EXPECT_GT(alone, 8);
      // Behind a meeting a save changes no weights; behind a step alone it is one itself.
      const auto met = Exported(*zero).value();
      ASSERT_OK(zero->ShareErrors());
      EXPECT_EQ(Exported(*zero).value(), met);
      ASSERT_OK(trainer.Step());
      EXPECT_EQ(masters.AreTheSame(*zero, self), self.rank == 0);
      ASSERT_OK(zero->ShareErrors());
      EXPECT_TRUE(masters.AreTheSame(*zero, self));
      EXPECT_NE(Exported(*zero).value(), met);
      self.AwaitOthers();
    });
  }
}

// Sum over meetings of what moved all ranks + mean over ranks of own errors + errors of the sums =
// sum over meetings of the mean of what ranks have moved.
TEST(ZeroOneAdamTest, NothingOfTheMovesIsLost) {
  constexpr int kRanks = 3, kSteps = 30, kSkipped = 15;
  ASSERT_EQ(optim::StepOf(kLocalSteps, kSkipped), optim::ZeroOneStep::kMeeting);
  std::vector<std::vector<double>> inputs(kRanks), errors(kRanks);
  std::vector<double> in, out;
  OnThreads({.size = kRanks}, [&](Rank& self) {
    const auto me = static_cast<size_t>(self.rank);
    const ZeroOptions options = Options(0, kLocalSteps, DType::kFloat16);
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self, {{.step = kSkipped, .rank = 1}});
    double magnitude = 0, rates = 0;
    int meetings = 0;
    for (int step = 0; step < kSteps; ++step) {
      const bool meets = optim::StepOf(kLocalSteps, step) == optim::ZeroOneStep::kMeeting;
      const auto& exchange = ZeroOptimizerTestPeer::Exchange(*zero);
      // Before the step: moves, and what the moment still moves.
      std::vector<double> moves, moments;
      ASSERT_OK(zero->step_stream().Synchronize());
      const auto each = [&](const std::function<void(int bucket, int64_t i, int64_t at)>& visit) {
        for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
          const Bucket& bucket = zero->plan().buckets()[b];
          if (!bucket.trainable) continue;
          int64_t at = 0;
          for (const BucketEntry& entry : bucket.entries) {
            for (int64_t i = 0; i < entry.range.size; ++i) {
              visit(static_cast<int>(b), entry.range.begin + i, at++);
            }
          }
        }
      };
      each([&](int bucket, int64_t i, int64_t at) {
        // Nothing has been taken yet before the first one.
        moves.push_back(meetings == 0 ? 0.0 : exchange.MovesOf(bucket)[at]);
        moments.push_back(zero->StateArray(bucket, 1).value()[static_cast<size_t>(i)]);
      });
      ASSERT_OK(trainer.Step());
      const kernels::StepState state = zero->controller().SaveState(zero->step_stream()).value();
      EXPECT_EQ(state.skip, step == kSkipped ? 1 : 0);
      if (step >= kLocalSteps.var_freeze_step && state.skip == 0) rates += kLearningRate;
      if (!meets || state.skip != 0) continue;
      ++meetings;
      inputs[me].clear(), errors[me].clear();
      std::vector<double> output;
      std::vector<std::vector<double>> by_element(2 * zero->plan().buckets().size());
      for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
        const Bucket& bucket = zero->plan().buckets()[b];
        if (!bucket.trainable) continue;
        const auto layout = internal::ErrorLayoutOf(zero->plan(), options, bucket);
        const auto of = exchange.ErrorsOf(static_cast<int>(b));
        std::vector<double>& left = by_element[b];
        left.resize(static_cast<size_t>(bucket.size));
        for (const auto& piece : internal::PiecesOf(layout.own, self.rank)) {
          for (int64_t i = 0; i < piece.size; ++i) {
            left[static_cast<size_t>(piece.in_bucket + i)] += of.own[piece.at + i] / kRanks;
          }
        }
        for (const auto& piece : internal::PiecesOf(layout.second, self.rank)) {
          for (int64_t i = 0; i < piece.size; ++i) {
            left[static_cast<size_t>(piece.in_bucket + i)] += of.second[piece.at + i];
          }
        }
      }
      const double beta1 = options.optimizer.groups[0].beta1;
      each([&](int bucket, int64_t i, int64_t at) {
        const void* const own = ZeroOptimizerTestPeer::OwnGradient(*zero, bucket);
        const double gradient =
            Load(own, zero->plan().bucket(bucket).dtype, i) * state.grad_multiplier;
        const size_t next = inputs[me].size();
        inputs[me].push_back(moves[next] +
                             kLearningRate * (beta1 * moments[next] + (1 - beta1) * gradient));
        errors[me].push_back(by_element[static_cast<size_t>(bucket)][static_cast<size_t>(i)]);
        output.push_back(exchange.Mean(bucket)[at] * rates);
      });
      rates = 0;
      self.AwaitOthers();
      if (self.rank == 0) {
        in.resize(output.size());
        out.resize(output.size());
        for (size_t i = 0; i < in.size(); ++i) {
          double left = 0;
          for (size_t r = 0; r < kRanks; ++r) {
            in[i] += inputs[r][i] / kRanks;
            left += errors[r][i];
            magnitude = std::max({magnitude, std::fabs(inputs[r][i]), std::fabs(errors[r][i])});
          }
          out[i] += output[i];
          magnitude = std::max({magnitude, std::fabs(in[i]), std::fabs(out[i])});
          EXPECT_NEAR(out[i] + left, in[i], 64 * kSteps * magnitude * 0x1p-24)
              << "step " << step << ", element " << i;
        }
      }
      self.AwaitOthers();
    }
    EXPECT_GE(meetings, 6);
    self.AwaitOthers();
  });
}

// Between meetings, in one, in a step of signs, and in one that meets each time.
TEST(ZeroOneAdamTest, ASkippedStepKeepsEveryBit) {
  for (const int stage : {0, 1}) {
    for (const int skipped : {2, 8, 11}) {
      optim::ZeroOneSchedule schedule = kLocalSteps;
      if (stage > 0) schedule.local_step_clipper = 1;
      using optim::ZeroOneStep;
      ASSERT_EQ(optim::StepOf(schedule, skipped), skipped == 2    ? ZeroOneStep::kSigns
                                                  : skipped == 11 ? ZeroOneStep::kMeeting
                                                  : stage == 0    ? ZeroOneStep::kLocal
                                                                  : ZeroOneStep::kMeeting);
      OnThreads({.size = 3}, [&](Rank& self) {
        const ZeroOptions options = Options(stage, schedule, DType::kFloat16);
        auto zero = CreateZero(ToyMatrices(), options, self).value();
        ASSERT_OK(InitializeToy(*zero));
        ToyTrainer trainer(*zero, self, {{.step = skipped, .rank = 1}});
        for (int step = 0; step < skipped; ++step) ASSERT_OK(trainer.Step());
        const std::string before = AllBytes(*zero, options);
        ASSERT_OK(trainer.Step());
        EXPECT_TRUE(AllBytes(*zero, options) == before) << skipped;
        EXPECT_EQ(zero->controller().SaveState(zero->step_stream()).value().skip, 1);
        ASSERT_OK(trainer.Step());
        EXPECT_FALSE(AllBytes(*zero, options) == before) << skipped;
        self.AwaitOthers();
      });
    }
  }
}

TEST(ZeroOneAdamTest, ACancelledPassChangesNoBit) {
  // Behind a step alone, a meeting, and the steps before.
  for (const int at : {2, 3, 9, 12}) {
    OnThreads({.size = 2}, [&](Rank& self) {
      const ZeroOptions options = Options(0, kLocalSteps, DType::kFloat16);
      auto zero = CreateZero(ToyMatrices(), options, self).value();
      auto other = CreateZero(ToyMatrices(), options, self).value();
      ASSERT_OK(InitializeToy(*zero));
      ASSERT_OK(InitializeToy(*other));
      ToyTrainer trainer(*zero, self), plain(*other, self);
      for (int step = 0; step < 20; ++step) {
        if (step == at) {
          ASSERT_OK(zero->CancelStep());
        }
        ASSERT_OK(trainer.Step());
        ASSERT_OK(plain.Step());
        EXPECT_TRUE(AllBytes(*zero, options) == AllBytes(*other, options)) << step;
      }
      self.AwaitOthers();
    });
  }
}

// As after a communicator has failed, when ranks cannot agree any more: they lend the weights of
// the last meeting.
TEST(ZeroOneAdamTest, WithoutOthersTheLastMeetingIsLent) {
  constexpr int kRanks = 2;
  Masters masters(kRanks);
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    OnThreads({.size = kRanks}, [&](Rank& self) {
      auto zero = CreateZero(ToyMatrices(), Options(0, kLocalSteps, dtype), self).value();
      ASSERT_OK(InitializeToy(*zero));
      ToyTrainer trainer(*zero, self);
      std::vector<std::vector<float>> met;
      for (int step = 0; step < 14; ++step) {
        ASSERT_OK(trainer.Step());
        if (step == 11) met = Exported(*zero).value();
      }
      ASSERT_EQ(optim::StepOf(kLocalSteps, 11), optim::ZeroOneStep::kMeeting);
      EXPECT_EQ(masters.AreTheSame(*zero, self), self.rank == 0);
      auto reader = self.context->CreateStream("reader").value();
      EXPECT_FALSE(zero->LendState(*reader).ok());
      ASSERT_OK(zero->CancelStep());
      EXPECT_EQ(masters.AreTheSame(*zero, self), self.rank == 0);
      ASSERT_OK(zero->LendState(*reader));
      ASSERT_OK(zero->ReturnState());
      EXPECT_TRUE(masters.AreTheSame(*zero, self));
      EXPECT_EQ(Exported(*zero).value(), met);
      // And go on from there.
      for (int step = 0; step < 2; ++step) ASSERT_OK(trainer.Step());
      EXPECT_TRUE(masters.AreTheSame(*zero, self));
      self.AwaitOthers();
    });
  }
}

// A rate of 0 moves nothing, and leaves numbers.
TEST(ZeroOneAdamTest, WithoutARateNothingMoves) {
  OnThreads({.size = 2}, [&](Rank& self) {
    ZeroOptions options = Options(0, kLocalSteps, DType::kFloat32);
    // Up to the eighth step, whose interval has rates.
    options.optimizer.groups[0].schedule =
        optim::WarmupDecayLR{.total_num_steps = 8, .warmup_max_lr = 0.01, .warmup_num_steps = 2};
    auto zero = CreateZero(ToyMatrices(), options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    std::vector<std::vector<float>> before;
    for (int step = 0; step < 24; ++step) {
      ASSERT_OK(trainer.Step());
      if (step == 11) before = Exported(*zero).value();
      if (step == 21) {
        ASSERT_OK(zero->ShareErrors());
      }
    }
    EXPECT_EQ(Exported(*zero).value(), before);
    for (size_t b = 0; b < zero->plan().buckets().size(); ++b) {
      if (!zero->plan().buckets()[b].trainable) continue;
      for (const int array : {0, 1}) {
        const auto values = zero->StateArray(static_cast<int>(b), array).value();
        for (const float x : values) ASSERT_TRUE(std::isfinite(x));
      }
    }
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::zero
