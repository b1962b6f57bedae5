// Training with moments that are codes of 8 bits: the specification's bits in every stage, wherever
// the cuts between ranks are, and wherever the state is.

#include <algorithm>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/captured_state.h"
#include "brigade/tests/zero/golden.h"
#include "brigade/zero/plan/layout.h"
#include "brigade/zero/plan/memory_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kAdamW8 = optim::OptimizerKind::kAdamW8;

std::vector<GoldenCase> CodedCases() {
  std::vector<GoldenCase> cases;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      if (ranks == 3 || dtype == DType::kBFloat16) cases.push_back({ranks, dtype, kAdamW8});
    }
  }
  cases.push_back({3, DType::kBFloat16, optim::OptimizerKind::kAdam8});
  GoldenCase c = {2, DType::kBFloat16, kAdamW8};
  c.micro_batches = 3;
  cases.push_back(c);
  c.accumulation = Accumulation::kAtBoundary;
  c.reload_at = 20;
  cases.push_back(c);
  // A tensor in each bucket, whose slices many ranks have nothing in, or a part of a block.
  c = {4, DType::kFloat32, kAdamW8};
  c.bucket_elements = 1;
  c.reload_at = 10;
  cases.push_back(c);
  c = {4, DType::kBFloat16, kAdamW8};
  c.shard_ranks = 2;
  cases.push_back(c);
  // In a file in chunks of less than a block, which are made a block's.
  for (const OffloadOptions& offload : Offloads()) {
    c = {3, DType::kBFloat16, kAdamW8};
    c.offload = offload;
    c.reload_at = 21;
    cases.push_back(c);
  }
  return cases;
}

class CodedMomentsTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(CodedMomentsTest, HasTheSpecificationsBitsInEveryStage) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

INSTANTIATE_TEST_SUITE_P(Cases, CodedMomentsTest, ::testing::ValuesIn(CodedCases()),
                         [](const auto& info) { return ToString(info.param); });

ModelSpec Model() {
  return {{"table", {{"wte", 10'000, {}, 0, true, {100, 100}}, {"wpe", 4095}}},
          {"layer", {{"w", 4096}, {"frozen", 9000, {}, 0, false}, {"v", 5001}}}};
}

Plan PlanOf(const optim::CodedMoments& coded, int ranks) {
  ModelSpec model = Model();
  model[0].parameters[0].low_rank = false;
  return Plan::Create(model, {.ranks = ranks, .tile_elements = 256, .coded = coded}).value();
}

TEST(CodedPlanTest, SmallTensorsAndTablesAreInBucketsOfTheirOwn) {
  const auto coded = [](const Plan& plan) {
    std::vector<std::string> names;
    for (const Parameter& p : plan.parameters()) {
      EXPECT_EQ(p.coded, plan.bucket(p.bucket).coded) << p.spec.name;
      if (p.coded) names.push_back(p.spec.name);
    }
    return names;
  };
  const Plan plan = PlanOf({}, 3);
  EXPECT_THAT(coded(plan), ::testing::ElementsAre("w", "v"));
  EXPECT_THAT(coded(PlanOf({.tables = true}, 3)), ::testing::ElementsAre("wte", "w", "v"));
  EXPECT_THAT(coded(PlanOf({.min_elements = 0}, 3)), ::testing::ElementsAre("wpe", "w", "v"));
  EXPECT_THAT(plan.Describe(2), HasSubstr(" with moments of its own kind"));
  for (const Bucket& bucket : plan.buckets()) {
    EXPECT_EQ(plan.slice(bucket) % 256, 0);
    for (const BucketEntry& entry : bucket.entries) EXPECT_EQ(entry.range.begin % 256, 0);
  }
}

// Of "w" and "v" 4096 and 5001 elements, with padding 9216: a byte for each of two moments, and two
// scales of 4 bytes for each 256.
TEST(CodedPlanTest, MemoryOfSaysTwoBytesAndTheScales) {
  ZeroOptions options;
  options.stage = 1;
  options.optimizer.kind = kAdamW8;
  const Plan plan = PlanOf({}, 3);
  int64_t coded = 0, full = 0;
  for (const Bucket& bucket : plan.buckets()) {
    if (bucket.trainable) (bucket.coded ? coded : full) += plan.slice(bucket);
  }
  EXPECT_EQ(coded, 9216 / 3);
  int64_t scales = 0;
  for (const MemoryTerm& term : MemoryOf(plan, options)) {
    if (term.name == "scales of moments") scales += term.bytes;
  }
  EXPECT_EQ(scales, coded / 256 * 8);
  // With the master.
  EXPECT_EQ(Total(MemoryOf(plan, options), device::Tier::kDevice, device::Purpose::kOptimizerState),
            coded * (4 + 2) + scales + full * 12);
}

TEST(CodedPlanTest, NobodyAttachesArraysToCodes) {
  collectives::OnThreads({.size = 2}, [&](collectives::Rank& self) {
    ZeroOptions options;
    options.optimizer.kind = kAdamW8;
    auto zero = CreateZero(Model(), options, self).value();
    EXPECT_THAT(zero->AttachState({}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("moments are codes")));
    const auto coded = std::find_if(zero->plan().buckets().begin(), zero->plan().buckets().end(),
                                    [](const Bucket& bucket) { return bucket.coded; });
    ASSERT_NE(coded, zero->plan().buckets().end());
    const int index = static_cast<int>(coded - zero->plan().buckets().begin());
    EXPECT_OK(zero->StateArray(index, 0));
    EXPECT_THAT(zero->StateArray(index, 1),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is of codes")));
    EXPECT_EQ(zero->StateArrayType(index, 2).dtype, DType::kUint8);
    EXPECT_EQ(zero->StateArrayType(index, 4).block, 256);
  });
}

}  // namespace
}  // namespace brigade::zero
