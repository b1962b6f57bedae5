#include "brigade/replicas/options.h"

#include <vector>

#include "brigade/replicas/round_plan.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OptionsTest, EachIsRefusedByName) {
  const auto refused = [](const OuterOptions& options, const char* text) {
    EXPECT_THAT(Validate(options), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused({.period = 0}, "period is 0; it must be at least 1");
  refused({.lr = 0}, "lr is 0; it must be positive");
  refused({.momentum = 1}, "momentum is 1; it must be at least 0 and below 1");
  refused({.period = 3, .fragments = 4}, "fragments is 4; it must be 1 to period, 3");
  refused({.period = 5, .fragments = 2, .delay = 2},
          "delay is 2; it must be at least 0 and below "
          "2, period / fragments");
  refused({.mix = 1}, "mix is 1; it must be at least 0 and below 1");
  refused({.wire = precision::DType::kInt32}, "it must be fp32, fp16 or bf16");
  refused({.start_step = -1}, "start_step is -1");
  EXPECT_OK(Validate({}));
}

TEST(OptionsTest, FragmentsAreDueAPartOfThePeriodApart) {
  const OuterOptions options = {.period = 6, .fragments = 3, .start_step = 2};
  std::vector<int> due;
  for (int64_t step = 1; step <= 12; ++step) due.push_back(DueFragment(options, step));
  EXPECT_THAT(due, ElementsAre(-1, -1, -1, 1, -1, 2, -1, 0, -1, 1, -1, 2));
}

TEST(OptionsTest, FragmentsAreRunsOfBucketsOfLikeSize) {
  const auto fragments = [](const zero::ModelSpec& model, int count) {
    const auto plan = zero::Plan::Create(model, {.ranks = 2});
    return FragmentsOf(*plan, count);
  };
  EXPECT_THAT(*fragments(Lines(4, 256), 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(*fragments(Lines(3, 256), 3),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  zero::ModelSpec uneven = Lines(4, 256);
  uneven[3].parameters[0].size = 100'000;
  EXPECT_THAT(*fragments(uneven, 2), ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3)));
  EXPECT_THAT(fragments(Lines(2, 256), 3),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("fragments is 3, but there are 2 trainable buckets")));
}

// On all ranks, with what follows from it, and the optimizer goes on without.
TEST(OptionsTest, AStateOnTheHostIsRefused) {
  collectives::OnThreads({.size = 2}, [](collectives::Rank& self) {
    zero::ZeroOptions inner = Plain(2, 0.1);
    inner.offload.optimizer_state = device::Tier::kHost;
    EXPECT_THAT(CreateMember(Lines(1, 256), inner, {}, 1, self),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("the optimizer state is on the host, not on the device")));
    EXPECT_THAT(CreateMember(Lines(1, 256), Plain(2, 0.1), {.fragments = 2}, 1, self),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1 trainable buckets")));
    EXPECT_THAT(CreateMember(Lines(1, 0), Plain(2, 0.1), {}, 1, self),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("no trainable parameter has an element")));
    EXPECT_THAT(CreateMember(Lines(1, 256), Plain(2, 0.1), {.period = 5 + self.rank}, 1, self),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("period 6")));
  });
}

int64_t SentIn(const collectives::Communicator& group) {
  int64_t sent = 0;
  for (int to = 0; to < group.size(); ++to) sent += group.sent_bytes(to);
  return sent;
}

// Of a rank, before the outer optimizer and behind.
TEST(AccountingTest, MemoryAndTrafficAreThoseOfTheFormulas) {
  using precision::DType;
  for (int stage = 0; stage < zero::kStages; ++stage) {
    for (const OuterOptions& options :
         {OuterOptions{.period = 4},
          OuterOptions{.period = 4, .lr = 1, .momentum = 0, .fragments = 2, .start_step = 2},
          OuterOptions{.period = 4, .fragments = 2, .delay = 1, .wire = DType::kFloat16}}) {
      SCOPED_TRACE(stage);
      SCOPED_TRACE(Describe(options));
      collectives::OnThreads({.size = 4}, [&](collectives::Rank& self) {
        auto groups = ReplicaGroups::Create(*self.communicator, 2);
        ASSERT_OK(groups);
        auto zero = zero::ZeroOptimizer::Create(Lines(3, 1000), Plain(stage, 0.1), *groups->inside,
                                                *self.context, *self.stream);
        ASSERT_OK(zero);
        const auto in_use = [&](device::Purpose purpose, device::Tier tier) {
          return tier == device::Tier::kHost
                     ? self.context->host_memory_stats().current_bytes(purpose)
                     : self.context->memory_stats().current_bytes(purpose);
        };
        std::vector<int64_t> before;
        for (const device::Tier tier : {device::Tier::kDevice, device::Tier::kHost}) {
          for (int p = 0; p < device::kPurposes; ++p) {
            before.push_back(in_use(static_cast<device::Purpose>(p), tier));
          }
        }
        const zero::Plan& plan = (*zero)->plan();
        const auto terms = MemoryOf(plan, (*zero)->options(), options, *groups->between);
        ASSERT_OK(terms);
        Member member = {*std::move(groups), {}, *std::move(zero), nullptr, self.rank / 2};
        auto outer =
            OuterOptimizer::Create(*member.zero, options, *member.groups.inside, *self.context);
        ASSERT_OK(outer);
        member.outer = *std::move(outer);
        ASSERT_OK(member.outer->Join(*member.groups.between));
        size_t i = 0;
        for (const device::Tier tier : {device::Tier::kDevice, device::Tier::kHost}) {
          for (int p = 0; p < device::kPurposes; ++p) {
            const auto purpose = static_cast<device::Purpose>(p);
            EXPECT_EQ(in_use(purpose, tier) - before[i++], zero::Total(*terms, tier, purpose)) << p;
          }
        }

        ASSERT_OK(SetAll(member, 1.0f));
        const int64_t sent_before = SentIn(*member.groups.between);
        const zero::Traffic inside_before = member.zero->traffic();
        constexpr int64_t kSteps = 9;
        for (int64_t step = 0; step < kSteps; ++step) {
          ASSERT_OK(StepAlong(member, self, 1.0f));
          ASSERT_OK(member.outer->Step());
        }
        ASSERT_OK(self.stream->Synchronize());
        const auto wanted = TrafficOfSteps(plan, member.zero->options(), options, 0, kSteps,
                                           *member.groups.inside, *member.groups.between);
        ASSERT_OK(wanted);
        EXPECT_GT(wanted->between, 0);
        EXPECT_EQ(member.outer->sent_bytes(), wanted->between);
        EXPECT_EQ(SentIn(*member.groups.between) - sent_before, wanted->between);
        const auto of_step =
            zero::TrafficOfStep(plan, member.zero->options(), *member.groups.inside);
        ASSERT_OK(of_step);
        EXPECT_EQ(member.zero->traffic().parameters - inside_before.parameters,
                  kSteps * of_step->parameters + wanted->parameters);
        self.AwaitOthers();
      });
    }
  }
}

}  // namespace
}  // namespace brigade::replicas
