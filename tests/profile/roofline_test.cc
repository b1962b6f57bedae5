#include "brigade/profile/roofline.h"

#include "gtest/gtest.h"

namespace brigade::profile {
namespace {

// The ridge is at 10 operations a byte.
constexpr double kPeak = 1000, kBandwidth = 100;
const Ceilings kMachine = {.flops_per_second = kPeak, .memory_bytes_per_second = kBandwidth};

TEST(RooflineTest, TheRidgeParts) {
  EXPECT_EQ(LimitOf(999, 100, kMachine), Limit::kMemory);
  EXPECT_EQ(LimitOf(1000, 100, kMachine), Limit::kCompute);
  EXPECT_EQ(LimitOf(1001, 100, kMachine), Limit::kCompute);
  EXPECT_EQ(LimitOf(0, 0, kMachine), Limit::kMemory);
  EXPECT_EQ(LimitOf(1, 0, kMachine), Limit::kCompute);
}

TEST(RooflineTest, TheSlowerOfBothIsTheLeastTime) {
  EXPECT_DOUBLE_EQ(LeastSeconds(500, 100, kMachine), 1);
  EXPECT_DOUBLE_EQ(LeastSeconds(3000, 100, kMachine), 3);
}

TEST(RooflineTest, WhatIsNotKnownLimitsNothing) {
  EXPECT_EQ(LeastSeconds(500, 100, {}), 0);
  EXPECT_EQ(LimitOf(500, 100, {}), Limit::kMemory);
  EXPECT_EQ(LimitOf(500, 1e9, {.flops_per_second = kPeak}), Limit::kCompute);
}

TEST(RooflineTest, TheLargestShareIsTheLimit) {
  EXPECT_EQ(Largest({1, 2, 5, 3}), Limit::kNetwork);
  EXPECT_EQ(Largest({1, 2, 2, 2}), Limit::kMemory);
  EXPECT_EQ(Name(Limit::kCompute), "compute");
  EXPECT_EQ(Name(Limit::kMemory), "memory");
  EXPECT_EQ(Name(Limit::kNetwork), "network");
  EXPECT_EQ(Name(Limit::kHost), "host");
}

}  // namespace
}  // namespace brigade::profile
