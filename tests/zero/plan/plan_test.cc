#include "brigade/zero/plan/plan.h"

#include <set>
#include <string>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::zero {
namespace {

using ::brigade::testing::StatusIs;
using precision::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What every plan must be, checked from the plan alone.
void ExpectSound(const Plan& plan, int64_t bucket_elements) {
  std::set<int> placed;
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    const int64_t element = precision::SizeOf(bucket.dtype);
    EXPECT_EQ(bucket.size % plan.ranks(), 0);
    EXPECT_EQ(plan.slice(bucket) * element % 256, 0);
    std::vector<int> covered(static_cast<size_t>(bucket.size));
    for (const BucketEntry& entry : bucket.entries) {
      const Parameter& p = plan.parameter(entry.parameter);
      EXPECT_TRUE(placed.insert(entry.parameter).second) << p.spec.name << " is placed twice";
      EXPECT_EQ(entry.range.begin * element % 256, 0) << p.spec.name;
      EXPECT_EQ(p.bucket, static_cast<int>(b));
      EXPECT_EQ(p.begin, entry.range.begin);
      EXPECT_EQ(p.spec.size, entry.range.size);
      EXPECT_EQ(*p.spec.dtype, bucket.dtype);
      EXPECT_EQ(p.spec.trainable, bucket.trainable);
      EXPECT_EQ(p.unit, bucket.unit);
      for (int64_t i = 0; i < entry.range.size; ++i) ++covered[entry.range.begin + i];
    }
    for (const ElementRange& range : bucket.padding) {
      for (int64_t i = 0; i < range.size; ++i) ++covered[range.begin + i];
    }
    EXPECT_TRUE(covered == std::vector<int>(covered.size(), 1)) << "bucket " << b;
    if (bucket.entries.size() > 1) {
      EXPECT_LE(bucket.entries.back().range.begin + bucket.entries.back().range.size,
                bucket_elements + 256 * static_cast<int64_t>(bucket.entries.size()));
    }
  }
  EXPECT_EQ(placed.size(), plan.parameters().size());
}

TEST(PlanTest, PlacesEveryElementOnce) {
  for (const int ranks : {1, 2, 3, 4, 8, 64}) {
    for (const int64_t bucket_elements : {1, 100, 1000, 100000}) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        const auto plan = Plan::Create(
            ToyModel(), {.ranks = ranks, .dtype = dtype, .bucket_elements = bucket_elements});
        ASSERT_OK(plan);
        ExpectSound(*plan, bucket_elements);
      }
    }
  }
}

TEST(PlanTest, PutsTheLastUnitFirstAndCrossesNoUnit) {
  const Plan plan =
      Plan::Create({{"first", {{"a", 10}, {"b", 10}}}, {"last", {{"c", 10}, {"d", 10}}}},
                   {.ranks = 2})
          .value();
  ASSERT_EQ(plan.buckets().size(), 2u);
  EXPECT_EQ(plan.buckets()[0].unit, 1);
  // "d" is used last, so it is first in its bucket.
  const int first = plan.buckets()[0].entries[0].parameter;
  EXPECT_EQ(plan.parameter(first).spec.name, "d");
  EXPECT_THAT(plan.units()[0].buckets, ElementsAre(1));
}

TEST(PlanTest, GivesTiedFrozenAndOtherTypesBucketsOfTheirOwn) {
  const Plan plan =
      Plan::Create({{"first", {{"tied", 10}, {"frozen", 10, {}, 0, false}, {"w", 10}}},
                    {"last", {{"norm", 10, DType::kFloat32}, {"v", 10}}, {"tied"}}},
                   {.ranks = 2})
          .value();
  EXPECT_EQ(plan.buckets().size(), 5u);
  const int tied = plan.parameters()[0].bucket;
  EXPECT_TRUE(plan.bucket(tied).tied);
  EXPECT_THAT(plan.bucket(tied).users, ElementsAre(0, 1));
  EXPECT_THAT(plan.units()[1].parameters, ElementsAre(3, 4, 0));
  EXPECT_THAT(plan.units()[1].buckets, ::testing::Contains(tied));
}

TEST(PlanTest, KnowsShapes) {
  const Plan plan =
      Plan::Create(
          {{"unit",
            {{"flat", 6}, {"matrix", 6, {}, 0, true, {2, 3}}, {"empty", 0, {}, 0, true, {4, 0}}}}},
          {})
          .value();
  EXPECT_THAT(plan.parameter(0).spec.shape, ElementsAre(6));
  EXPECT_THAT(plan.parameter(1).spec.shape, ElementsAre(2, 3));
  EXPECT_THAT(plan.parameter(2).spec.shape, ElementsAre(4, 0));
  EXPECT_THAT(plan.Describe(1), ::testing::StartsWith("matrix [2, 3] bf16"));
}

TEST(PlanTest, GivesALargeParameterABucketOfItsOwn) {
  const Plan plan = Plan::Create({{"unit", {{"small", 10}, {"large", 5000}, {"little", 10}}}},
                                 {.ranks = 4, .bucket_elements = 1000})
                        .value();
  ASSERT_EQ(plan.buckets().size(), 3u);
  EXPECT_THAT(plan.buckets()[1].entries, ::testing::SizeIs(1));
  EXPECT_GE(plan.buckets()[1].size, 5000);
}

TEST(PlanTest, CountsSlotsOfTheSizesThatUnitsInARowNeed) {
  ModelSpec model = {{"embedding", {{"wte", 10000}}}};
  for (const char* name : {"h0", "h1", "h2", "h3"}) model.push_back({name, {{name, 4096}}});
  const Plan plan = Plan::Create(model, {.ranks = 2, .dtype = DType::kFloat32}).value();
  const auto all = [](const Bucket&) { return true; };
  const int64_t layer = plan.buckets()[0].bytes();
  const int64_t embedding = plan.buckets()[4].bytes();
  using Sizes = std::map<int64_t, int>;
  const std::vector<int> in_order = {0, 1, 2, 3, 4}, again = {4, 0, 4, 3, 2};
  EXPECT_EQ(PooledBuffersNeeded(plan.buckets(), in_order, 1, all),
            (Sizes{{layer, 1}, {embedding, 1}}));
  EXPECT_EQ(PooledBuffersNeeded(plan.buckets(), in_order, 2, all),
            (Sizes{{layer, 2}, {embedding, 1}}));
  EXPECT_EQ(PooledBuffersNeeded(plan.buckets(), in_order, 9, all),
            (Sizes{{layer, 4}, {embedding, 1}}));
  EXPECT_EQ(PooledBuffersNeeded(plan.buckets(), {}, 2, all), Sizes());
  // What is used again needs no second buffer.
  EXPECT_EQ(PooledBuffersNeeded(plan.buckets(), absl::MakeConstSpan(again).first(3), 3, all),
            (Sizes{{layer, 1}, {embedding, 1}}));
  EXPECT_EQ(PooledBuffersNeeded(plan.buckets(), again, 3, all),
            (Sizes{{layer, 3}, {embedding, 1}}));
}

TEST(PlanTest, PartsOfTiedGradientsAreArraysBesideTheBuckets) {
  const ModelSpec model = {{"first", {{"own", 10}}, {"table"}},
                           {"second", {{"table", 300}, {"other", 5}}, {}},
                           {"third", {{"still", 7, {}, 0, false}}, {"table", "other"}},
                           {"fourth", {}, {"still"}}};
  const Plan together = Plan::Create(model, {.ranks = 2}).value();
  EXPECT_EQ(&together.gradients(), &together.buckets());
  const Plan apart = Plan::Create(model, {.ranks = 2, .tied_apart = true}).value();
  // Buckets are the same; of the tied one, of the second unit, two users have parts.
  ASSERT_EQ(apart.buckets().size(), together.buckets().size());
  ASSERT_EQ(apart.gradients().size(), apart.buckets().size() + 2);
  const int tied = apart.parameter(1).bucket;
  EXPECT_EQ(apart.parameter(2).bucket, tied);
  EXPECT_EQ(apart.parameter(1).entry, 1u);
  EXPECT_EQ(apart.parameter(2).entry, 0u);
  EXPECT_THAT(apart.bucket(tied).users, ElementsAre(0, 1, 2));
  const int first = static_cast<int>(apart.buckets().size());
  EXPECT_EQ(apart.GradientOf(1, tied), tied);
  EXPECT_EQ(apart.GradientOf(0, tied), first);
  EXPECT_EQ(apart.GradientOf(2, tied), first + 1);
  EXPECT_EQ(together.GradientOf(2, tied), tied);
  for (const int g : {tied, first, first + 1}) {
    const Bucket& part = apart.gradient(g);
    EXPECT_EQ(apart.BucketOf(part), tied);
    EXPECT_TRUE(apart.IsAddedUp(part));
    EXPECT_FALSE(together.IsAddedUp(part));
    EXPECT_THAT(part.users, ElementsAre(part.unit));
    EXPECT_EQ(part.size, apart.bucket(tied).size);
  }
  EXPECT_FALSE(apart.IsAddedUp(apart.gradient(apart.parameter(0).bucket)));
  // Without a gradient there are no parts.
  EXPECT_FALSE(apart.IsAddedUp(apart.gradient(apart.parameter(3).bucket)));
}

TEST(PlanTest, WhatIsTiedOutsideLiesAlikeWhateverElseThereIs) {
  ParameterSpec tied = {"tied", 300};
  tied.tied_outside = true;
  ParameterSpec second = {"second", 40};
  second.tied_outside = true;
  const Plan plan =
      Plan::Create({{"unit", {{"a", 3}, tied, {"b", 5}, second}}}, {.ranks = 2, .tied_apart = true})
          .value();
  ASSERT_EQ(plan.buckets().size(), 3u);
  for (const int p : {1, 3}) {
    const Bucket& bucket = plan.bucket(plan.parameter(p).bucket);
    EXPECT_THAT(bucket.entries, ::testing::SizeIs(1));
    EXPECT_TRUE(bucket.tied_outside);
    EXPECT_TRUE(plan.IsAddedUp(bucket));
  }
  EXPECT_THAT(plan.Describe(1), HasSubstr("bf16 tied outside, group 0"));
}

TEST(PlanTest, NamesWhatIsWrongWithAModel) {
  const auto error = [](const ModelSpec& model, PlanOptions options = {}) {
    return Plan::Create(model, options).status();
  };
  const auto says = [](const char* text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(error({}, {.ranks = 0}), says("ranks is 0"));
  EXPECT_THAT(error({}, {.bucket_elements = 0}), says("bucket_elements is 0"));
  EXPECT_THAT(error({{"u", {{"w", -1}}}}), says("unit \"u\", parameter \"w\": size is -1"));
  EXPECT_THAT(error({{"u", {{"w", 6, {}, 0, true, {2, 4}}}}}), says("shape is [2, 4], size is 6"));
  EXPECT_THAT(error({{"u", {{"w", 6, {}, 0, true, {-2, -3}}}}}), says("shape is [-2, -3]"));
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_THAT(error({{"u", {{"w", 0, {}, 0, true, {kHuge, 4}}}}}), says("size is 0"));
  EXPECT_THAT(error({{"u", {{"", 1}}}}), says("it has no name"));
  EXPECT_THAT(error({{"u", {{"w", 1, {}, -2}}}}), says("group is -2"));
  EXPECT_THAT(error({{"u", {{"w", 1, DType::kInt32}}}}), says("dtype must be fp32"));
  ParameterSpec outside = {"w", 1};
  outside.tied_outside = true;
  EXPECT_THAT(error({{"u", {outside}}}), says("it is tied_outside, but tied_apart is not set"));
  EXPECT_THAT(error({{"u", {{"w", 1}, {"w", 2}}}}), says("two parameters are called \"w\""));
  EXPECT_THAT(error({{"u"}, {"u"}}), says("two units are called \"u\""));
  EXPECT_THAT(error({{"u", {{"w", 1}}}, {"v", {}, {"x"}}}), says("\"x\", which does not exist"));
  EXPECT_THAT(error({{"u", {{"w", 1}}, {"w"}}}), says("\"w\", which it already uses"));
}

}  // namespace
}  // namespace brigade::zero
