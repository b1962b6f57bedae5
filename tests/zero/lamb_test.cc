// Training with LAMB: the specification's bits in every stage, wherever the cuts between ranks are.

#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/golden.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::HasSubstr;

constexpr auto kLamb = optim::OptimizerKind::kLamb;

GoldenCase Case(int ranks, DType dtype) {
  GoldenCase c = {ranks, dtype, kLamb};
  c.bucket_elements = 30'000;
  return c;
}

// Tensors of three tiles, and of one, between slices of one tile, of two and of more.
std::vector<GoldenCase> LambCases() {
  std::vector<GoldenCase> cases = {Case(1, DType::kBFloat16), Case(2, DType::kFloat16),
                                   Case(3, DType::kFloat32), Case(4, DType::kBFloat16),
                                   Case(5, DType::kFloat32)};
  GoldenCase c = Case(2, DType::kBFloat16);
  c.micro_batches = 3;
  cases.push_back(c);
  c.accumulation = Accumulation::kAtBoundary;
  c.reload_at = 20;
  cases.push_back(c);
  // A tensor in each bucket, whose slices many ranks have nothing in.
  c = Case(4, DType::kFloat32);
  c.bucket_elements = 1;
  cases.push_back(c);
  c = Case(4, DType::kBFloat16);
  c.shard_ranks = 2;
  cases.push_back(c);
  return cases;
}

class LambTest : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(LambTest, HasTheSpecificationsBitsInEveryStage) {
  ExpectTheSpecificationsBits(GetParam(), device::Cpu());
}

INSTANTIATE_TEST_SUITE_P(Cases, LambTest, ::testing::ValuesIn(LambCases()),
                         [](const auto& info) { return ToString(info.param); });

TEST(LambOptionsTest, RefuseOffload) {
  ZeroOptions options = OptionsOf(Case(2, DType::kBFloat16), 2);
  EXPECT_OK(Validate(options));
  options.offload.optimizer_state = device::Tier::kHost;
  EXPECT_THAT(Validate(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("offload.optimizer_state is host, but the optimizer is LAMB")));
}

TEST(LambPlanTest, ParametersAndSlicesBeginAtTiles) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       Plan::Create(ModelOf(kLamb), {.ranks = 3,
                                                     .bucket_elements = 30'000,
                                                     .tile_elements = optim::TensorTile(kLamb)}));
  for (const Bucket& bucket : plan.buckets()) {
    EXPECT_EQ(plan.slice(bucket) % 8192, 0);
    for (const BucketEntry& entry : bucket.entries) EXPECT_EQ(entry.range.begin % 8192, 0);
  }
  EXPECT_THAT(Plan::Create(ModelOf(kLamb), {.tile_elements = 12}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tile_elements is 12, must be a power of two")));
}

}  // namespace
}  // namespace brigade::zero
