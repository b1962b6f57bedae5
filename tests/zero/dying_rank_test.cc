// A rank that dies in a call of a step that sends signs, factors, greatest elements or codes: the
// others get its error, on every engine, and what each of them owns is the state before the step or
// behind it. (fault_test has steps that send what they have.)

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/dying_rank.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/compressed_cases.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using collectives::CreateEngineFn;
using collectives::Rank;
using collectives::RanksOptions;
using ::testing::HasSubstr;

constexpr int kDead = 1;

// What a rank has before the third step and behind it.
struct Outcome {
  CapturedState before, after;
  // Of rank kDead, in the step.
  int calls = 0;
};

// Three steps; in the third one rank kDead dies in its call behind so many, or, with -1, nobody
// does. [rank]
std::vector<Outcome> Train(const CompressedCase& c, const RanksOptions& ranks,
                           const CreateEngineFn& engines, int call) {
  std::vector<Outcome> outcomes(static_cast<size_t>(c.ranks));
  collectives::DyingRank dying(kDead);
  collectives::OnRanks(ranks, dying.Watch(engines), [&](Rank& self) {
    Outcome& outcome = outcomes[static_cast<size_t>(self.rank)];
    auto zero = CreateZero(ToyMatrices(), c.options, self).value();
    ASSERT_OK(InitializeToy(*zero));
    ToyTrainer trainer(*zero, self);
    for (int step = 0; step < 2; ++step) ASSERT_OK(trainer.Step());
    auto before = Capture(*zero, self);
    ASSERT_OK(before);
    outcome.before = *std::move(before);
    // Of the steps before, others may still receive what this rank has sent.
    self.AwaitOthers();
    if (self.rank == kDead) {
      outcome.calls = -dying.calls();
      if (call >= 0) dying.DieBehind(call);
    }
    absl::Status status = trainer.Step();
    if (status.ok()) status = self.communicator->Synchronize(zero->step_stream());
    for (const auto& group : self.groups) {
      if (status.ok() && group != nullptr) status = group->status();
    }
    if (call < 0) {
      ASSERT_OK(status);
      if (self.rank == kDead) outcome.calls += dying.calls();
      outcome.after = Capture(*zero, self).value();
      self.AwaitOthers();
      return;
    }
    // Ranks of another group may need none of the calls that are left: their step is done.
    const bool is_done = status.ok() && c.options.shard_ranks > 0 && self.rank != kDead;
    if (!is_done) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("rank 1 has died")))
          << "rank " << self.rank;
      // As a trainer does it: those that wait for this rank in a group without the dead one end,
      // too.
      for (const auto& group : self.groups) {
        if (group != nullptr) group->Abort(status);
      }
      if (self.rank == kDead) return;
    }
    ASSERT_OK(zero->CancelStep());
    auto after = CaptureAlone(*zero, self);
    ASSERT_OK(after);
    outcome.after = *std::move(after);
  });
  return outcomes;
}

// The calls behind the decision whether the step counts.
int CallsBehindTheDecision(const CompressedCase& c) {
  const ZeroOptions& options = c.options;
  if (options.stage == 0) return 0;
  const int sums_of_tensors = optim::IsLamb(options.optimizer.kind) ? 1 : 0;
  // Stage 3 gathers weights where they are used.
  if (options.stage == 3) return sums_of_tensors;
  const Plan plan =
      Plan::Create(ToyMatrices(), {c.ranks, options.dtype, options.bucket_elements, false, 1,
                                   optim::TensorTile(options.optimizer.kind)})
          .value();
  int buckets = 0;
  for (const Bucket& bucket : plan.buckets()) buckets += bucket.trainable ? 1 : 0;
  return buckets + sums_of_tensors;
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

using EngineAndCase = std::tuple<EngineKind, CompressedCase>;
class DyingRankTest : public collectives::NcclTest,
                      public ::testing::WithParamInterface<EngineAndCase> {};

TEST_P(DyingRankTest, TheOthersGetItsErrorAndKeepTheStateOfAStep) {
  const auto& [kind, c] = GetParam();
  const RanksOptions ranks = {.size = c.ranks};
  const std::vector<Outcome> good = Train(c, ranks, EnginesOf(kind, ranks), -1);
  const int calls = good[kDead].calls, decided = calls - CallsBehindTheDecision(c);
  ASSERT_GT(decided, 0);
  for (const int call :
       std::set<int>{0, decided / 4, decided / 2, decided - 1, decided, calls - 1}) {
    if (call >= calls) continue;
    SCOPED_TRACE(absl::StrCat("in call ", call, " of ", calls, ", decided before ", decided));
    const std::vector<Outcome> ended = Train(c, ranks, EnginesOf(kind, ranks), call);
    for (size_t rank = 0; rank < ended.size(); ++rank) {
      SCOPED_TRACE(absl::StrCat("rank ", rank));
      const auto& [before, after, of_rank] = ended[rank];
      EXPECT_EQ(before, good[rank].before);
      if (rank == kDead) continue;
      const bool counts = after.step.step != before.step.step;
      // Ranks of another node, or group, may not need the last call of this one.
      if (call < decided && c.options.node_ranks + c.options.shard_ranks == 0) {
        EXPECT_FALSE(counts);
      }
      // LAMB gathers sums between its moments and its weights (decision 0192).
      if (counts && optim::IsLamb(c.options.optimizer.kind) && call == decided) continue;
      EXPECT_OK(CompareLent(c.options, after, counts ? good[rank].after : before, before));
    }
  }
}

std::vector<EngineAndCase> EnginesAndCases() {
  std::vector<EngineAndCase> parameters;
  for (const EngineKind kind : {EngineKind::kThreads, EngineKind::kNccl, EngineKind::kGloo}) {
    for (const CompressedCase& c : CompressedCases()) {
      // Two seconds each.
      const bool is_slow = c.options.stage != 1 || c.options.averages_moments();
      if (kind == EngineKind::kGloo && is_slow && c.options.node_ranks + c.options.shard_ranks == 0)
        continue;
      parameters.emplace_back(kind, c);
    }
  }
  return parameters;
}

std::string NameOf(const ::testing::TestParamInfo<EngineAndCase>& info) {
  const char* const engines[] = {"Threads", "Nccl", "Gloo"};
  return absl::StrCat(engines[static_cast<int>(std::get<0>(info.param))],
                      std::get<1>(info.param).name);
}

INSTANTIATE_TEST_SUITE_P(Cases, DyingRankTest, ::testing::ValuesIn(EnginesAndCases()), NameOf);

}  // namespace
}  // namespace brigade::zero
