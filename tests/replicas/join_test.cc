// What replicas give each other in Join, and what is left where it fails.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/engine.h"
#include "brigade/collectives/engines/threads/thread_group.h"
#include "brigade/device/status_macros.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using ::brigade::testing::StatusIs;
using collectives::Communicator;
using collectives::Engine;
using collectives::OnThreads;
using collectives::Rank;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr OuterOptions kOptions = {.period = 2, .lr = 0.5, .momentum = 0.5};

// An engine that ends its group instead of its last broadcast, when those before are over, or has
// an error there of which the group does not hear; 0: it has no last one.
class FailingEngine final : public Engine {
 public:
  FailingEngine(std::unique_ptr<Engine> engine, int broadcasts, bool ends_group)
      : engine_(std::move(engine)), left_(broadcasts), ends_group_(ends_group) {}

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  collectives::Workspace WorkspaceFor(
      const collectives::CollectiveSignature& signature) const override {
    return engine_->WorkspaceFor(signature);
  }
  absl::Status Reserve(const collectives::CollectiveSignature& signature) override {
    return engine_->Reserve(signature);
  }
  absl::Status Run(const collectives::Collective& call, device::Stream& stream) override {
    if (call.signature.kind == collectives::CollectiveKind::kBroadcast && --left_ == 0) {
      if (!ends_group_) return absl::DataLossError("the test fails here alone");
      BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
      engine_->Abort(absl::UnavailableError("the test ends the group"));
    }
    return engine_->Run(call, stream);
  }
  absl::Status AllGatherHost(const collectives::Fingerprint& fingerprint,
                             absl::Span<const int64_t> values, absl::Span<int64_t> all) override {
    return engine_->AllGatherHost(fingerprint, values, all);
  }
  absl::StatusOr<std::unique_ptr<Engine>> CreateSubgroup(absl::Span<const int> members,
                                                         absl::Span<const int> lost,
                                                         uint64_t generation) override {
    return engine_->CreateSubgroup(members, lost, generation);
  }
  void Abort(const absl::Status& reason) override { engine_->Abort(reason); }
  absl::Status status() const override { return engine_->status(); }
  int64_t sent_bytes(int rank) const override { return engine_->sent_bytes(rank); }

 private:
  const std::unique_ptr<Engine> engine_;
  int left_;
  const bool ends_group_;
};

absl::Status Steps(Member& member, Rank& self, int count) {
  for (int step = 0; step < count; ++step) {
    BRIGADE_RETURN_IF_ERROR(StepAlong(member, self, 1.0f));
    BRIGADE_RETURN_IF_ERROR(member.outer->Step());
  }
  return absl::OkStatus();
}

// The ranks with this one's place in those replicas; null in others.
std::unique_ptr<Communicator> Among(Member& member, const std::vector<int>& replicas) {
  const bool is_in = std::find(replicas.begin(), replicas.end(), member.replica) != replicas.end();
  return member.groups.between->Split(is_in ? 0 : -1, 0).value();
}

// This rank's end of such a group.
std::unique_ptr<Communicator> Failing(collectives::ThreadGroup& group, int replica, int broadcasts,
                                      Rank& self, bool ends_group = true) {
  auto engine = std::make_unique<FailingEngine>(group.Join(replica, *self.context).value(),
                                                broadcasts, ends_group);
  return Communicator::Create(std::move(engine), *self.context).value();
}

constexpr char kNoneIsWhole[] =
    "replicas: no replica here has a whole state: an earlier Join has failed while it came; load a "
    "checkpoint (LoadState, Resume) first";

class JoinTest : public ::testing::TestWithParam<int> {};

// Of three replicas of two ranks the first one has a round more than the others. It gives its state
// to the second one, and at the first place that ends behind one of two buckets. A fourth one is
// new.
TEST_P(JoinTest, AReplicaThatHasGotAPartOfAStateIsNotTheOneThatGivesIt) {
  auto group = collectives::ThreadGroup::Create({2, absl::Seconds(60)}).value();
  OnThreads({.size = 8}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(GetParam(), 1.0), kOptions, 4, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    OuterOptimizer& outer = *member->outer;
    const auto masters = [&] { return Masters(*member->zero).value(); };
    auto three = Among(*member, {0, 1, 2});
    if (three != nullptr) {
      ASSERT_OK(outer.Join(*three));
      ASSERT_OK(Steps(*member, self, 2));
      // d = 2; v = 2; w0 = 1 - 0.5 (2 + 1).
      ASSERT_THAT(masters(), Each(-0.5f));
    }
    auto first = Among(*member, {0});
    auto two = Among(*member, {0, 1});
    if (first != nullptr) {
      ASSERT_OK(outer.Join(*first));
      ASSERT_OK(Steps(*member, self, 2));
      // d = 2; v = 1 + 2; w0 = -0.5 - 0.5 (2 + 1.5).
      ASSERT_THAT(masters(), Each(-2.25f));
    }
    if (two != nullptr) {
      if (member->groups.inside->rank() == 0) {
        two = Failing(*group, member->replica, member->replica == 0 ? 3 : 0, self);
      }
      EXPECT_THAT(outer.Join(*two),
                  StatusIs(absl::StatusCode::kUnavailable, HasSubstr("the test ends the group")));
      EXPECT_THAT(outer.Step(), StatusIs(absl::StatusCode::kFailedPrecondition));
      two.reset();
    }
    auto with_new = Among(*member, {1, 3});
    if (with_new != nullptr) {
      EXPECT_THAT(outer.Join(*with_new),
                  StatusIs(absl::StatusCode::kFailedPrecondition, kNoneIsWhole));
    }
    auto others = Among(*member, {1, 2});
    if (others != nullptr) {
      ASSERT_OK(outer.Join(*others));
      EXPECT_EQ(outer.steps(), 2);
      EXPECT_EQ(outer.last_round(), 2);
      EXPECT_THAT(masters(), Each(-0.5f));
      ASSERT_OK(Steps(*member, self, 2));
    }
    if (first != nullptr) {
      // What it gave it still has.
      ASSERT_OK(outer.Join(*first));
      EXPECT_EQ(outer.last_round(), 4);
    }
    EXPECT_THAT(masters(), Each(member->replica == 3 ? 1.0f : -2.25f));
    self.AwaitOthers();
    member->outer.reset();
  });
}

// Before its deadline, which would name no cause.
TEST(JoinTest, AnErrorOfOneRankAloneIsToldToAllReplicas) {
  auto group = collectives::ThreadGroup::Create({3, absl::Seconds(20)}).value();
  OnThreads({.size = 6}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(1, 1.0), kOptions, 3, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    std::unique_ptr<Communicator> failing;
    if (member->groups.inside->rank() == 0) {
      failing = Failing(*group, member->replica, member->replica == 0 ? 2 : 0, self,
                        /*ends_group=*/false);
    }
    EXPECT_THAT(member->outer->Join(failing ? *failing : *member->groups.between),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the test fails here alone")));
    self.AwaitOthers();
    member->outer.reset();
  });
}

TEST(JoinTest, ACheckpointMakesAReplicaWholeAgain) {
  auto group = collectives::ThreadGroup::Create({2, absl::Seconds(60)}).value();
  OnThreads({.size = 2}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(1, 1.0), kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    OuterOptimizer& outer = *member->outer;
    ASSERT_OK(outer.Join(*member->groups.between));
    ASSERT_OK(Steps(*member, self, 2));
    const auto saved = zero::Capture(*member->zero, self);
    ASSERT_OK(saved);
    auto two = Failing(*group, self.rank, self.rank == 0 ? 1 : 0, self);
    EXPECT_THAT(outer.Join(*two), StatusIs(absl::StatusCode::kUnavailable));
    two.reset();
    auto second = Among(*member, {1});
    if (second != nullptr) {
      EXPECT_THAT(outer.Join(*second),
                  StatusIs(absl::StatusCode::kFailedPrecondition, kNoneIsWhole));
      ASSERT_OK(zero::LoadCaptured(*member->zero, *saved));
      outer.Resume(2);
      ASSERT_OK(outer.Join(*second));
      EXPECT_THAT(Masters(*member->zero).value(), Each(-0.5f));
    }
    self.AwaitOthers();
    member->outer.reset();
  });
}

// Lines with frozen weights behind them, which are larger than a round's deltas.
zero::ModelSpec WithFrozen() {
  zero::ModelSpec model = Lines(2, 300);
  model.push_back({"frozen",
                   {{.name = "frozen.w",
                     .size = 5000,
                     .dtype = precision::DType::kBFloat16,
                     .trainable = false}},
                   {}});
  return model;
}

// As passes see them.
absl::StatusOr<std::vector<float>> FrozenWeights(Member& member, Rank& self) {
  zero::UnitScope scope(*member.zero, 2, zero::Pass::kForward);
  const auto* const weights = scope.weights<precision::BFloat16>(2);
  BRIGADE_RETURN_IF_ERROR(scope.status());
  BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
  std::vector<float> values;
  for (int64_t i = 0; i < 5000; ++i) values.push_back(static_cast<float>(weights[i]));
  return values;
}

int64_t SentIn(const Communicator& group) {
  int64_t sent = 0;
  for (int to = 0; to < group.size(); ++to) sent += group.sent_bytes(to);
  return sent;
}

// Two of three replicas begin, and the third one joins them behind a round.
TEST_P(JoinTest, ThoseThatBeginGetTheFrozenWeightsToo) {
  OnThreads({.size = 6}, [](Rank& self) {
    auto member = CreateMember(WithFrozen(), Plain(GetParam(), 1.0), kOptions, 3, self);
    ASSERT_OK(member);
    OuterOptimizer& outer = *member->outer;
    const zero::Plan& plan = member->zero->plan();
    // w0, v and frozen weights, of which the first replica sends each other one its own.
    int64_t given = 0;
    for (const zero::Bucket& bucket : plan.buckets()) {
      given += UpdatedElements(plan, member->zero->options(), bucket) * (bucket.trainable ? 8 : 2);
    }
    if (member->replica > 0) given = 0;
    ASSERT_OK(SetAll(*member, static_cast<float>(member->replica + 1)));
    auto two = Among(*member, {0, 1});
    if (two != nullptr) {
      ASSERT_OK(outer.Join(*two));
      EXPECT_EQ(outer.setup_bytes(), given);
      EXPECT_EQ(SentIn(*two), given);
      EXPECT_THAT(FrozenWeights(*member, self).value(), Each(1.0f));
      ASSERT_OK(Steps(*member, self, 2));
    } else {
      EXPECT_THAT(FrozenWeights(*member, self).value(), Each(3.0f));
    }
    ASSERT_OK(outer.Join(*member->groups.between));
    two.reset();
    EXPECT_EQ(outer.setup_bytes(), 3 * given);
    EXPECT_THAT(FrozenWeights(*member, self).value(), Each(1.0f));
    ASSERT_OK(Steps(*member, self, 2));
    EXPECT_THAT(FrozenWeights(*member, self).value(), Each(1.0f));
    const std::vector<float> exported = Masters(*member->zero).value();
    EXPECT_THAT(std::vector<float>(exported.begin() + 600, exported.end()), Each(1.0f));
    // Nobody begins.
    ASSERT_OK(outer.Join(*member->groups.between));
    self.AwaitOthers();
    member->outer.reset();
  });
}

// As from checkpoints of trainings that had others; where weights stay that a pass has gathered.
TEST_P(JoinTest, ThoseThatHaveResumedGetTheFrozenWeightsToo) {
  OnThreads({.size = 4}, [](Rank& self) {
    zero::ZeroOptions inner = Plain(GetParam(), 1.0);
    if (inner.stage == 3) inner.persistence_threshold = 10'000;
    auto member = CreateMember(WithFrozen(), inner, kOptions, 2, self);
    ASSERT_OK(member);
    const auto own = static_cast<float>(member->replica + 1);
    ASSERT_OK(SetAll(*member, own));
    EXPECT_THAT(FrozenWeights(*member, self).value(), Each(own));
    member->outer->Resume(4);
    ASSERT_OK(member->outer->Join(*member->groups.between));
    EXPECT_THAT(FrozenWeights(*member, self).value(), Each(1.0f));
    self.AwaitOthers();
    member->outer.reset();
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, JoinTest, ::testing::Range(0, zero::kStages));

// Errors of codes are forgotten in the fourth step, by the count of the replica that was there
// first, two steps behind the other's own. What they are then depends on nothing before.
TEST(JoinTest, AReplicaThatJoinsForgetsErrorsOfCodesWithTheOthers) {
  std::vector<std::vector<std::string>> errors(4);
  OnThreads({.size = 4}, [&](Rank& self) {
    zero::ZeroOptions inner = Plain(2, 1.0);
    inner.quantized_gradients = kernels::QuantFormat::kInt4;
    inner.loco = zero::LocoOptions{.reset_steps = 3};
    auto member = CreateMember(Lines(2, 1000), inner, kOptions, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    const auto step = [&](int number) -> absl::Status {
      const auto gradient = [&](int64_t i) {
        return static_cast<float>((i * 37 + number * 11 + self.rank % 2 * 5) % 101);
      };
      BRIGADE_RETURN_IF_ERROR(StepAlong(*member, self, gradient));
      return member->outer->Step();
    };
    auto alone = Among(*member, {0});
    if (alone != nullptr) {
      ASSERT_OK(member->outer->Join(*alone));
      ASSERT_OK(step(1));
      ASSERT_OK(step(2));
    }
    ASSERT_OK(member->outer->Join(*member->groups.between));
    ASSERT_OK(step(3));
    ASSERT_OK(step(4));
    const auto state = zero::Capture(*member->zero, self);
    ASSERT_OK(state);
    for (const auto& arrays : state->arrays) {
      errors[static_cast<size_t>(self.rank)].push_back(arrays.back());
    }
    self.AwaitOthers();
    member->outer.reset();
  });
  for (const size_t rank : {0, 1}) {
    EXPECT_NE(errors[rank][0], std::string(errors[rank][0].size(), '\0'));
    EXPECT_TRUE(errors[rank] == errors[rank + 2]);
  }
}

// Moments that ranks exchange, frozen ones and the numbers of 1-bit LAMB's tensors are those of the
// replica that was there; errors are of a replica's own messages, and begin with zero.
TEST(JoinTest, AReplicaThatJoinsGoesOnWithFrozenMoments) {
  using optim::OptimizerKind;
  for (const auto kind :
       {OptimizerKind::kOneBitAdam, OptimizerKind::kOneBitLamb, OptimizerKind::kZeroOneAdam}) {
    for (const int stage : {0, 2}) {
      SCOPED_TRACE(absl::StrCat("optimizer ", static_cast<int>(kind), ", stage ", stage));
      std::vector<std::string> moments(4), numbers(4), left_out(4);
      OnThreads({.size = 4}, [&](Rank& self) {
        zero::ZeroOptions inner;
        inner.stage = stage;
        inner.bucket_elements = 1000;
        inner.optimizer.kind = kind;
        inner.optimizer.freeze_step = 2;
        inner.optimizer.zero_one = {.var_freeze_step = 2, .local_step_clipper = 1};
        auto member = CreateMember(zero::ToyMatrices(), inner, kOptions, 2, self);
        ASSERT_OK(member);
        ASSERT_OK(zero::InitializeToy(*member->zero));
        zero::ToyTrainer trainer(*member->zero, self);
        const auto step = [&]() -> absl::Status {
          BRIGADE_RETURN_IF_ERROR(trainer.Step());
          return member->outer->Step();
        };
        auto alone = Among(*member, {0});
        if (alone != nullptr) {
          ASSERT_OK(member->outer->Join(*alone));
          for (int s = 0; s < 5; ++s) ASSERT_OK(step());
        }
        ASSERT_OK(member->outer->Join(*member->groups.between));
        ASSERT_OK(self.stream->Synchronize());
        ASSERT_OK(member->zero->step_stream().Synchronize());
        const auto me = static_cast<size_t>(self.rank);
        left_out[me] = zero::LeftOut(*member->zero);
        // Behind those of the master: what is saved, but for errors and outer weights.
        for (size_t b = 0; b < member->zero->plan().buckets().size(); ++b) {
          if (!member->zero->plan().buckets()[b].trainable) continue;
          for (int array = 1; array <= optim::Moments(inner.optimizer); ++array) {
            const auto values = member->zero->StateArray(static_cast<int>(b), array).value();
            moments[me].append(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
          }
        }
        // Of tensors with elements: the others' mean nothing, and no state has them.
        const auto of_tensors = zero::ZeroOptimizerTestPeer::Numbers(*member->zero);
        size_t tensor = 0;
        for (const zero::Bucket& bucket : member->zero->plan().buckets()) {
          if (!bucket.trainable || of_tensors.empty()) continue;
          for (const zero::BucketEntry& entry : bucket.entries) {
            const auto* const bytes = reinterpret_cast<const char*>(&of_tensors[tensor++]);
            if (entry.range.size == 0) continue;
            numbers[me].append(bytes, sizeof(kernels::OneBitLambNumbers));
          }
        }
        // And a round with both.
        for (int s = 0; s < 4; ++s) ASSERT_OK(step());
        ASSERT_OK(self.stream->Synchronize());
        self.AwaitOthers();
        member->outer.reset();
      });
      for (const size_t rank : {0, 1}) {
        EXPECT_TRUE(moments[rank] == moments[rank + 2]) << rank;
        EXPECT_TRUE(numbers[rank] == numbers[rank + 2]) << rank;
        EXPECT_NE(left_out[rank], std::string(left_out[rank].size(), '\0'));
        EXPECT_EQ(left_out[rank + 2], std::string(left_out[rank].size(), '\0'));
      }
      EXPECT_EQ(numbers[0].empty(), kind != OptimizerKind::kOneBitLamb);
    }
  }
}

}  // namespace
}  // namespace brigade::replicas
