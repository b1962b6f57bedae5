// Memory and traffic are those of the models, in one group and in several.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/zero/accounting.h"
#include "brigade/tests/zero/toy_model.h"
#include "brigade/zero/plan/memory_model.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using collectives::OnThreads;
using collectives::Rank;
using precision::DType;

TEST(AccountingTest, MeasuredBytesEqualTheModel) {
  for (const int ranks : {1, 3, 4, 8}) {
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) { ExpectMemoryOfTheModel(setting, self); });
    }
  }
}

TEST(AccountingTest, WhatTheModelNamesIsThePapersFormula) {
  // Parameters without padding: what is left are the paper's terms and the slots.
  const ModelSpec model = {{"a", {{"a.w", 1 << 15}}}, {"b", {{"b.w", 1 << 15}}}};
  for (const int ranks : {1, 2, 4}) {
    const Plan plan = Plan::Create(model, {.ranks = ranks}).value();
    for (int stage = 0; stage < kStages; ++stage) {
      ZeroOptions options;
      options.stage = stage;
      int64_t bytes = 0;
      for (const MemoryTerm& term : MemoryOf(plan, options)) {
        if (term.name == "padding") {
          EXPECT_EQ(term.bytes, 0);
        }
        if (term.name == "weights" || term.name == "gradients" || term.name == "master" ||
            term.name == "moments") {
          bytes += term.bytes;
        }
      }
      EXPECT_EQ(static_cast<double>(bytes), PaperBytes(1 << 16, ranks, stage));
    }
  }
}

TEST(AccountingTest, TrafficOfDirectCollectivesIsThePapersFormula) {
  for (const int ranks : {1, 3, 4}) {
    for (const Setting& setting : Settings()) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        ExpectTrafficOfTheModel(setting, self);
        // The paper's counts, for what it counts.
        if (setting.model.size() != 4 || setting.options.micro_batches != 1) return;
        if (setting.options.communication_dtype.has_value()) return;
        if (!setting.options.backward_units.empty() || !setting.options.runs.empty()) return;
        const Plan plan =
            Plan::Create(setting.model,
                         {.ranks = ranks,
                          .dtype = setting.options.dtype,
                          .bucket_elements = setting.options.bucket_elements,
                          .tile_elements = optim::TensorTile(setting.options.optimizer.kind),
                          .coded = optim::CodesOf(setting.options.optimizer)})
                .value();
        int64_t padded = 0;
        for (const Bucket& bucket : plan.buckets()) padded += bucket.bytes();
        const int64_t times = setting.options.stage < 3 ? 2 : 3;
        const Traffic traffic = TrafficOfStep(plan, setting.options, *self.communicator).value();
        EXPECT_EQ(traffic.gradients + traffic.parameters, times * padded / ranks * (ranks - 1));
      });
    }
  }
}

struct Groups {
  int ranks, shard_ranks, hpz_ranks;
};
constexpr Groups kGroups[] = {{4, 2, 2}, {3, 1, 0}, {2, 2, 1}, {4, 4, 2}};

// Of those of the toy by turns one in five, in groups that have a whole state each, in stage 3 with
// second slices.
std::vector<Setting> SettingsInGroups(int shard_ranks, int hpz_ranks) {
  std::vector<Setting> settings = Settings();
  int turn = shard_ranks + hpz_ranks;
  std::erase_if(settings, [&](const Setting& setting) {
    return setting.model.size() != ToyModel().size() || turn++ % 5 != 0;
  });
  for (Setting& setting : settings) {
    setting.options.shard_ranks = shard_ranks;
    if (setting.options.stage == 3) setting.options.hpz_ranks = hpz_ranks;
  }
  return settings;
}

TEST(AccountingTest, MeasuredBytesEqualTheModelInGroups) {
  for (const auto& [ranks, shard_ranks, hpz_ranks] : kGroups) {
    for (const Setting& setting : SettingsInGroups(shard_ranks, hpz_ranks)) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        ExpectMemoryOfTheModel(setting, self);
        self.AwaitOthers();
      });
    }
  }
}

TEST(AccountingTest, TrafficInGroupsIsTheFormula) {
  for (const auto& [ranks, shard_ranks, hpz_ranks] : kGroups) {
    for (const Setting& setting : SettingsInGroups(shard_ranks, hpz_ranks)) {
      SCOPED_TRACE(
          absl::StrCat(setting.name, ", stage ", setting.options.stage, ", ranks ", ranks));
      OnThreads({.size = ranks}, [&](Rank& self) {
        ExpectTrafficOfTheModel(setting, self);
        self.AwaitOthers();
      });
    }
  }
  // Of plain ones by hand: inside as of 2 ranks, and between the 3 groups 2/3 of a slice, which is
  // half of the gradients, there and back, whatever the number of micro-batches.
  for (int stage = 0; stage < kStages; ++stage) {
    for (const int micro_batches : {1, 4}) {
      OnThreads({.size = 6}, [&](Rank& self) {
        ZeroOptions options;
        options.stage = stage;
        options.shard_ranks = 2;
        options.micro_batches = micro_batches;
        options.accumulator = DType::kBFloat16;
        auto zero = CreateZero(PlainModel(), options, self).value();
        const ZeroGroups groups = GroupsOf(options, self);
        const Traffic traffic =
            TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
        int64_t padded = 0;
        for (const Bucket& bucket : zero->plan().buckets()) padded += bucket.bytes();
        EXPECT_EQ(traffic.between, 2 * (padded / 2) / 3 * 2);
        EXPECT_EQ(traffic.gradients, (stage == 0 ? micro_batches + 1 : micro_batches) * padded / 2);
        EXPECT_EQ(traffic.parameters, (stage == 0  ? 0
                                       : stage < 3 ? 1
                                                   : 2 * micro_batches) *
                                          padded / 2);
        EXPECT_EQ(traffic.scalars, 5 * 16);
        self.AwaitOthers();
      });
    }
  }
}

TEST(AccountingTest, SecondSlicesAreTheFormula) {
  for (const int micro_batches : {1, 3}) {
    OnThreads({.size = 6}, [&](Rank& self) {
      ZeroOptions options;
      options.stage = 3;
      options.hpz_ranks = 3;
      options.micro_batches = micro_batches;
      auto zero = CreateZero(PlainModel(), options, self).value();
      const ZeroGroups groups = GroupsOf(options, self);
      const Traffic traffic =
          TrafficOfStep(zero->plan(), options, groups.shards, groups.outer).value();
      int64_t padded = 0;
      for (const Bucket& bucket : zero->plan().buckets()) padded += bucket.bytes();
      EXPECT_EQ(traffic.parameters, micro_batches * padded / 6 * 5);
      EXPECT_EQ(traffic.near, micro_batches * padded / 3 * 2);
      int64_t second = 0;
      for (const MemoryTerm& term : MemoryOf(zero->plan(), options)) {
        second += term.name == "second slices of weights" ? term.bytes : 0;
      }
      EXPECT_EQ(second, padded / 3);
      self.AwaitOthers();
    });
  }
}

// The paper's terms are those of a group's ranks: stage 3 in two groups of 2 needs what it needs on
// 2 ranks, but for the padding and what follows from the number of all ranks.
TEST(AccountingTest, AGroupHasTheMemoryOfItsRanks) {
  for (int stage = 0; stage < kStages; ++stage) {
    ZeroOptions options;
    options.stage = stage;
    const auto bytes_of = [&](int ranks, int shard_groups) {
      const Plan plan =
          Plan::Create(PlainModel(), {.ranks = ranks, .shard_groups = shard_groups}).value();
      int64_t bytes = 0;
      for (const MemoryTerm& term : MemoryOf(plan, options)) {
        const bool is_paper = term.name == "weights" || term.name == "gradients" ||
                              term.name == "master" || term.name == "moments";
        bytes += is_paper ? term.bytes : 0;
      }
      return bytes;
    };
    EXPECT_EQ(bytes_of(2, 2), bytes_of(2, 1));
    EXPECT_EQ(bytes_of(2, 2) == bytes_of(4, 1), stage == 0);
  }
}

}  // namespace
}  // namespace brigade::zero
