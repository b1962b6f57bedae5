// Rounds have the specification's bits, in every stage, on every engine, whatever the timing.

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/race_checker/race_checker.h"
#include "brigade/device/status_macros.h"
#include "brigade/replicas/round_plan.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/replicas/replica_job.h"
#include "brigade/tests/spec/replicas.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/test_peer.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::replicas {
namespace {

using collectives::Rank;
using precision::DType;

struct Case {
  OuterOptions options;
  DType dtype = DType::kBFloat16;
  int replicas = 2;
  // What the ranks of a replica exchange in its steps.
  std::optional<zero::GradientCompression> exchange = {};
  optim::OptimizerKind optimizer = optim::OptimizerKind::kAdamW;
  // Groups with a whole state each, in each replica.
  int shard_ranks = 0;
  int ranks = 4;
};

std::string ToString(const Case& c) {
  return absl::StrCat(c.replicas, " replicas in ", static_cast<int>(c.dtype), ": ",
                      Describe(c.options), ", exchange of ",
                      c.exchange.has_value() ? zero::Name(*c.exchange) : "nothing", ", optimizer ",
                      static_cast<int>(c.optimizer), ", groups of ", c.shard_ranks);
}

spec::RoundRule RuleOf(const OuterOptions& options) {
  return {
      .period = options.period,
      .lr = options.lr,
      .momentum = options.momentum,
      .nesterov = options.nesterov,
      .fragments = options.fragments,
      .delay = options.delay,
      .mix = options.mix,
      .wire = options.wire == DType::kBFloat16 ? spec::Format::kBFloat16 : spec::Format::kFloat32,
      .start_step = options.start_step};
}

// Of each element of Masters; -1: it is frozen.
std::vector<int> FragmentOfElements(const zero::Plan& plan, int fragments) {
  const auto parts = FragmentsOf(plan, fragments).value();
  std::vector<int> of_bucket(plan.buckets().size(), -1);
  for (size_t f = 0; f < parts.size(); ++f) {
    for (const int b : parts[f]) of_bucket[static_cast<size_t>(b)] = static_cast<int>(f);
  }
  std::vector<int> all;
  for (const zero::Parameter& each : plan.parameters()) {
    all.insert(all.end(), static_cast<size_t>(each.spec.size),
               of_bucket[static_cast<size_t>(each.bucket)]);
  }
  return all;
}

// Of all replicas, from those of a place.
absl::StatusOr<std::vector<std::vector<float>>> MastersOfAll(Member& member, int replicas,
                                                             Rank& self) {
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<float> mine, Masters(*member.zero));
  std::vector<float> all(mine.size() * static_cast<size_t>(replicas));
  BRIGADE_RETURN_IF_ERROR(member.groups.between->AllGather(mine.data(), all.data(),
                                                           static_cast<int64_t>(mine.size()),
                                                           DType::kFloat32, {}, *self.stream));
  BRIGADE_RETURN_IF_ERROR(member.groups.between->Synchronize(*self.stream));
  std::vector<std::vector<float>> by_replica;
  for (auto it = all.begin(); it != all.end(); it += static_cast<ptrdiff_t>(mine.size())) {
    by_replica.emplace_back(it, it + static_cast<ptrdiff_t>(mine.size()));
  }
  return by_replica;
}

absl::Status CheckGroups(const std::vector<float>& mine, Member& member, Rank& self) {
  collectives::Communicator& between = *member.shards.between;
  const auto count = static_cast<int64_t>(mine.size());
  std::vector<float> all(mine.size() * static_cast<size_t>(between.size()));
  BRIGADE_RETURN_IF_ERROR(
      between.AllGather(mine.data(), all.data(), count, DType::kFloat32, {}, *self.stream));
  BRIGADE_RETURN_IF_ERROR(between.Synchronize(*self.stream));
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::memcmp(&all[i], &mine[i % mine.size()], sizeof(float)) == 0) continue;
    return absl::InternalError(absl::StrCat("groups differ in element ", i % mine.size()));
  }
  return absl::OkStatus();
}

// Ten steps of the toy, each compared with the specification.
absl::Status MatchesTheSpecification(Rank& self, const Case& c, int stage) {
  zero::ZeroOptions inner;
  inner.stage = stage;
  inner.dtype = c.dtype;
  inner.shard_ranks = c.shard_ranks;
  inner.bucket_elements = 1000;
  if (c.exchange.has_value()) {
    inner.gradient_compression = {.method = *c.exchange, .rank = 2, .density = 0.03};
  }
  inner.optimizer.kind = c.optimizer;
  inner.optimizer.freeze_step = 3;
  inner.optimizer.zero_one = {.var_freeze_step = 5, .local_step_clipper = 1};
  // A stage that has no memory for what ranks exchange.
  if (!zero::Validate(inner).ok()) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(Member member,
                           CreateMember(zero::ToyMatrices(), inner, c.options, c.replicas, self));
  BRIGADE_RETURN_IF_ERROR(zero::InitializeToy(*member.zero));
  BRIGADE_RETURN_IF_ERROR(member.outer->Join(*member.groups.between));
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<float> initial, Masters(*member.zero));
  spec::Replicas wanted(RuleOf(c.options),
                        FragmentOfElements(member.zero->plan(), c.options.fragments), initial,
                        static_cast<size_t>(c.replicas));
  zero::ToyTrainer trainer(*member.zero, self);
  for (int step = 0; step < 10; ++step) {
    BRIGADE_RETURN_IF_ERROR(trainer.Step());
    BRIGADE_ASSIGN_OR_RETURN(wanted.own, MastersOfAll(member, c.replicas, self));
    wanted.Step();
    const std::string left_out = zero::LeftOut(*member.zero);
    BRIGADE_RETURN_IF_ERROR(member.outer->Step());
    BRIGADE_RETURN_IF_ERROR(self.stream->Synchronize());
    if (zero::LeftOut(*member.zero) != left_out) {
      return absl::InternalError(absl::StrCat("stage ", stage, ", step ", step + 1,
                                              ": a round has changed the errors of exchanges"));
    }
    BRIGADE_ASSIGN_OR_RETURN(const std::vector<float> mine, Masters(*member.zero));
    const std::vector<float>& own = wanted.own[static_cast<size_t>(member.replica)];
    if (c.shard_ranks > 0) {
      // Groups of a replica have the same.
      BRIGADE_RETURN_IF_ERROR(CheckGroups(mine, member, self));
    }
    for (size_t i = 0; i < mine.size(); ++i) {
      if (std::memcmp(&mine[i], &own[i], sizeof(float)) == 0) continue;
      return absl::InternalError(absl::StrCat("stage ", stage, ", step ", step + 1, ", element ", i,
                                              ": ", mine[i], ", not ", own[i]));
    }
  }
  // Replicas did differ in between, or nothing would be tested.
  if (member.outer->rounds() == 0) return absl::InternalError("there was no round");
  return self.stream->Synchronize();
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int fragments : {1, 2, 3}) {
    for (const int64_t delay : {int64_t{0}, int64_t{1}}) {
      cases.push_back(
          {{.period = 6, .fragments = fragments, .delay = delay, .mix = delay > 0 ? 0.5 : 0.0}});
    }
  }
  cases.push_back({{.period = 2, .nesterov = false}, DType::kFloat32});
  cases.push_back({{.period = 3, .lr = 1.0, .momentum = 0, .start_step = 4}, DType::kFloat16});
  cases.push_back({{.period = 4, .fragments = 2, .wire = DType::kBFloat16}});
  cases.push_back({{.period = 4}, DType::kBFloat16, 4});
  for (const auto method : zero::kGradientCompressions) {
    cases.push_back({.options = {.period = 3, .delay = 1, .mix = 0.5}, .exchange = method});
  }
  for (const auto kind : {optim::OptimizerKind::kOneBitAdam, optim::OptimizerKind::kOneBitLamb,
                          optim::OptimizerKind::kZeroOneAdam}) {
    cases.push_back({.options = {.period = 2}, .optimizer = kind});
  }
  for (const int shard_ranks : {1, 2}) {
    cases.push_back({.options = {.period = 4, .fragments = 2, .delay = 1, .mix = 0.5},
                     .shard_ranks = shard_ranks,
                     .ranks = 4 * shard_ranks});
  }
  // Groups exchange what they have summed, in stage 3 too.
  cases.push_back(
      {.options = {.period = 3}, .exchange = zero::GradientCompression::kOneBit, .shard_ranks = 1});
  return cases;
}

class RoundsTest : public ::testing::TestWithParam<int> {};

TEST_P(RoundsTest, HaveTheSpecificationsBitsWhateverTheTiming) {
  device::RaceChecker checker;
  uint64_t seed = 0;
  int with_exchange = 0;
  for (const Case& c : Cases()) {
    // By turns in the stages that have exchanges.
    const bool exchanges = c.exchange.has_value() || optim::AveragesMoments(c.optimizer);
    const bool by_turns = exchanges && c.shard_ranks == 0;
    if (by_turns && with_exchange++ % 3 != GetParam()) continue;
    // Eight threads are many for a small machine.
    if (c.ranks > 4 && GetParam() % 2 == 0) continue;
    SCOPED_TRACE(ToString(c));
    const device::RandomDelay delay = {.seed = seed++, .max_delay_us = 50};
    collectives::OnThreads({.size = c.ranks, .random_delay = delay, .race_checker = &checker},
                           [&](Rank& self) {
                             EXPECT_OK(MatchesTheSpecification(self, c, GetParam()));
                             self.AwaitOthers();
                           });
  }
  EXPECT_TRUE(checker.reports().empty());
}

INSTANTIATE_TEST_SUITE_P(Stages, RoundsTest, ::testing::Range(0, zero::kStages));

const Case kOnEngines = {{.period = 4, .fragments = 2, .delay = 1, .mix = 0.25}};

TEST(RoundsTest, ProcessesHaveTheSpecificationsBits) {
  using collectives::testing::Arrays;
  using collectives::testing::Fault;
  for (const int stage : {0, 2, 3}) {
    collectives::testing::ExpectAllOk(collectives::testing::OnProcesses(
        4, collectives::testing::kNever, [&](Rank& self, Arrays&, Fault&) {
          return MatchesTheSpecification(self, kOnEngines, stage);
        }));
  }
}

class RoundsNcclTest : public collectives::NcclTest {};

TEST_F(RoundsNcclTest, NcclHasTheSpecificationsBits) {
  for (const DType wire : {DType::kFloat32, DType::kBFloat16}) {
    Case c = kOnEngines;
    c.options.wire = wire;
    const collectives::RanksOptions options = {.size = 4};
    collectives::OnRanks(options, collectives::NcclEngines(options), [&](Rank& self) {
      EXPECT_OK(MatchesTheSpecification(self, c, 3));
      self.AwaitOthers();
    });
  }
}

// In float16, whose scale is one for each sum, deltas keep 11 digits.
TEST(RoundsTest, AWireOfFloat16MovesWeightsByNearlyTheSame) {
  std::vector<float> exact;
  for (const DType wire : {DType::kFloat32, DType::kFloat16}) {
    collectives::OnThreads({.size = 2}, [&](Rank& self) {
      const OuterOptions options = {.period = 2, .wire = wire};
      auto member = CreateMember(Lines(2, 300), Plain(2, 1e-7), options, 2, self);
      ASSERT_OK(member);
      ASSERT_OK(SetAll(*member, 0.0f));
      ASSERT_OK(member->outer->Join(*member->groups.between));
      for (int step = 0; step < 4; ++step) {
        ASSERT_OK(StepAlong(*member, self, self.rank == 0 ? 1.0f : 0.3f));
        ASSERT_OK(member->outer->Step());
      }
      const std::vector<float> now = Masters(*member->zero).value();
      if (self.rank == 0 && wire == DType::kFloat32) exact = now;
      self.AwaitOthers();
      for (size_t i = 0; i < now.size(); ++i) {
        EXPECT_NEAR(now[i], exact[i], 1e-3f * std::abs(exact[i]));
      }
    });
  }
}

TEST(RoundsTest, AMeanThatIsNotFiniteChangesNothing) {
  collectives::OnThreads({.size = 2}, [&](Rank& self) {
    auto member = CreateMember(Lines(2, 300), Plain(2, 1e10), {.period = 2}, 2, self);
    ASSERT_OK(member);
    ASSERT_OK(SetAll(*member, 1.0f));
    ASSERT_OK(member->outer->Join(*member->groups.between));
    for (int step = 0; step < 2; ++step) {
      ASSERT_OK(StepAlong(*member, self, self.rank == 0 ? 1e-10f : 1e10f));
      ASSERT_OK(member->outer->Step());
    }
    EXPECT_THAT(Masters(*member->zero).value(), ::testing::Each(1.0f));
    EXPECT_EQ(member->outer->rounds_not_finite(), 1);
    EXPECT_EQ(member->outer->last_round(), 0);
    for (int step = 0; step < 2; ++step) {
      ASSERT_OK(StepAlong(*member, self, 1e-10f));
      ASSERT_OK(member->outer->Step());
    }
    EXPECT_EQ(member->outer->rounds_not_finite(), 1);
    EXPECT_EQ(member->outer->last_round(), 4);
    EXPECT_THAT(Masters(*member->zero).value(), ::testing::Each(::testing::Lt(0.0f)));
    self.AwaitOthers();
  });
}

}  // namespace
}  // namespace brigade::replicas
