#include "brigade/kernels/sign_pack/sign_pack.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/codecs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int64_t> Sizes() {
  std::vector<int64_t> sizes = InterestingSizes();
  for (const int64_t size : {15, 16, 17, 511, 512, 513, 8191, 8192, 8193}) sizes.push_back(size);
  return sizes;
}

template <typename T>
struct Lists {
  Lists(const std::vector<int64_t>& sizes, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto offset = static_cast<int64_t>(i % 9);
      arrays.emplace_back(sizes[i], offset);
      errors.emplace_back(sizes[i], offset / 2);
      messages.emplace_back(SignBytes(sizes[i]), 0);
      back.emplace_back(sizes[i], offset);
      for (int64_t j = 0; j < sizes[i]; ++j) {
        arrays[i][j] = T(normal(random));
        // Some sums are 0, of either sign.
        errors[i][j] = random() % 8 == 0 ? -static_cast<float>(arrays[i][j]) : normal(random);
        if (random() % 16 == 0) arrays[i][j] = T(errors[i][j] = -0.0f);
      }
      std::fill(messages[i].data(), messages[i].data() + messages[i].size(), 0x77);
      pack.push_back({arrays[i].data(), errors[i].data(), messages[i].data(), sizes[i]});
      unpack.push_back({messages[i].data(), back[i].data(), sizes[i]});
      wanted_errors.push_back(Values(errors[i]));
    }
    workspace.resize(static_cast<size_t>(SignPackWorkspaceSize(pack)));
  }

  void Pack(device::Stream& stream) {
    ASSERT_OK(SignPack(pack, {precision::kDType<T>}, absl::MakeSpan(workspace), &scale, stream));
    ASSERT_OK(stream.Synchronize());
  }

  // Also keeps the errors for the next step.
  void ExpectTheSpecification(const std::string& how) {
    std::vector<std::vector<float>> values;
    for (const auto& array : arrays) values.push_back(Values(array));
    const spec::Signs wanted = spec::PackSigns(values, wanted_errors);
    EXPECT_TRUE(SameBits(scale, wanted.scale)) << how << ": " << scale << ", " << wanted.scale;
    for (size_t i = 0; i < arrays.size(); ++i) {
      ASSERT_EQ(static_cast<size_t>(messages[i].size()), wanted.messages[i].size());
      EXPECT_TRUE(
          std::equal(wanted.messages[i].begin(), wanted.messages[i].end(), messages[i].data()))
          << how << ", message " << i;
      EXPECT_TRUE(messages[i].GuardsAreIntact()) << how;
      EXPECT_TRUE(Matches(errors[i], wanted_errors[i])) << how << ", errors " << i;
    }
  }

  std::deque<GuardedArray<T>> arrays, back;
  std::deque<GuardedArray<float>> errors;
  std::deque<GuardedArray<uint8_t>> messages;
  std::vector<SignPackSegment> pack;
  std::vector<SignUnpackSegment> unpack;
  std::vector<std::vector<float>> wanted_errors;
  std::vector<double> workspace;
  float scale = -1;
};

template <typename T>
class SignPackTypedTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(SignPackTypedTest, Types);

TYPED_TEST(SignPackTypedTest, GivesTheSpecificationsBytesAtEveryStepOnEveryCpu) {
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    Lists<TypeParam> lists(Sizes(), 101);
    for (int step = 0; step < 3; ++step) {
      lists.Pack(stream);
      lists.ExpectTheSpecification(how);
    }
    ASSERT_OK(SignUnpack(lists.unpack, {precision::kDType<TypeParam>, {1, 0, 0.3f}}, stream));
    ASSERT_OK(stream.Synchronize());
    for (size_t i = 0; i < lists.back.size(); ++i) {
      const auto& message = lists.messages[i];
      std::vector<float> wanted =
          spec::UnpackSigns({{message.data(), message.data() + message.size()}},
                            static_cast<size_t>(lists.back[i].size()), 0.3f);
      for (float& value : wanted) value = spec::Round(kFormat<TypeParam>, value);
      EXPECT_TRUE(Matches(lists.back[i], wanted)) << how << ", segment " << i;
    }
  });
}

TYPED_TEST(SignPackTypedTest, WhatIsNotFiniteMarksTheScaleAndLeavesAllErrors) {
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      Lists<TypeParam> lists({700, 9000}, 102);
      lists.arrays[1][8500] = TypeParam(bad);
      lists.Pack(stream);
      EXPECT_TRUE(std::isnan(lists.scale)) << how;
      lists.ExpectTheSpecification(how);
      ASSERT_OK(SignUnpack(lists.unpack, {precision::kDType<TypeParam>, {}}, stream));
      ASSERT_OK(stream.Synchronize());
      for (int64_t i = 0; i < 700; ++i) {
        ASSERT_TRUE(std::isnan(static_cast<float>(lists.back[0][i]))) << how << i;
      }
    }
  });
}

TEST(SignPackTest, GivesTheKnownScalesErrorsAndSigns) {
  const CpuRun cpu = OnCpu(1);
  Lists<float> lists({2, 2}, 103);
  const float values[] = {4, 28, -4, 28};
  for (int i = 0; i < 4; ++i) {
    lists.arrays[i / 2][i % 2] = values[i];
    lists.errors[i / 2][i % 2] = 0;
  }
  lists.Pack(*cpu.stream);
  EXPECT_EQ(lists.scale, 20.0f);
  EXPECT_TRUE(Matches(lists.errors[0], {-16, 8}));
  EXPECT_TRUE(Matches(lists.errors[1], {16, 8}));
  EXPECT_EQ(lists.messages[0][64], 0);
  EXPECT_EQ(lists.messages[1][64], 1);
  lists.Pack(*cpu.stream);
  EXPECT_FLOAT_EQ(lists.scale, 26.8328157f);
}

TEST(SignPackTest, AnEmptyListHasTheScale0) {
  const CpuRun cpu = OnCpu(1);
  Lists<float> lists({0, 0}, 104);
  lists.Pack(*cpu.stream);
  EXPECT_EQ(lists.scale, 0.0f);
}

TEST(SignPackTest, StreamsTheSumOfManyRanksOutWithTheSameBits) {
  constexpr int64_t kSize = 1'100'003;
  const int64_t stride = SignBytes(kSize) + 64;
  std::vector<uint8_t> memory(5 * stride + 64);
  uint8_t* const messages = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  std::mt19937 random(105);
  std::vector<std::vector<uint8_t>> of_rank;
  for (int64_t rank = 0; rank < 5; ++rank) {
    uint8_t* const message = messages + rank * stride;
    for (int64_t i = 64; i < SignBytes(kSize); ++i) message[i] = static_cast<uint8_t>(random());
    const float scale = 0.37f * static_cast<float>(rank + 1);
    std::memcpy(message, &scale, 4);
    of_rank.emplace_back(message, message + SignBytes(kSize));
  }
  const std::vector<float> wanted = spec::UnpackSigns(of_rank, kSize, 0.2f);
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    for (const int64_t offset : {0, 1}) {
      GuardedArray<float> array(kSize, offset);
      const SignUnpackSegment all = {messages, array.data(), kSize};
      ASSERT_OK(SignUnpack({&all, 1}, {DType::kFloat32, {5, stride, 0.2f}}, stream));
      ASSERT_OK(stream.Synchronize());
      EXPECT_TRUE(Matches(array, wanted)) << how;
    }
  });
}

TEST(SignPackTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("sign_pack");
  std::vector<SignPackSegment> pack = {{nullptr, nullptr, nullptr, 10},
                                       {nullptr, nullptr, nullptr, 11}};
  for (int i = 0; i < 2; ++i) {
    const std::string of = " of segment " + std::to_string(i);
    arrays.Add("array" + of, pack[i].array, 10 + i, 2, 2, BadArrays::kRead);
    arrays.Add("error" + of, pack[i].error, 10 + i, BadArrays::kWritten);
    arrays.Add("message" + of, pack[i].message, 128, 1, 64, BadArrays::kWritten);
  }
  double* workspace = nullptr;
  float* scale = nullptr;
  arrays.Add("workspace", workspace, 4, BadArrays::kWritten);
  arrays.Add("scale", scale, 1, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu.stream, [&] {
    return SignPack(pack, {DType::kFloat16}, {workspace, 4}, scale, *cpu.stream);
  });

  BadArrays back("sign_unpack");
  std::vector<SignUnpackSegment> unpack = {{nullptr, nullptr, 10}, {nullptr, nullptr, 11}};
  for (int i = 0; i < 2; ++i) {
    const std::string of = " of segment " + std::to_string(i);
    back.Add("messages" + of, unpack[i].messages, 128, 1, 64, BadArrays::kRead);
    back.Add("array" + of, unpack[i].array, 10 + i, 2, 2, BadArrays::kWritten);
  }
  back.ExpectRefused(*cpu.stream, [&] {
    return SignUnpack(unpack, {DType::kFloat16, {2, 256, 1.0f}}, *cpu.stream);
  });
}

TEST(SignPackTest, RejectsBadOptions) {
  const CpuRun cpu = OnCpu(1);
  Lists<float> lists({600}, 106);
  const auto refused = [](const std::string& message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(SignPack(lists.pack, {DType::kInt32}, absl::MakeSpan(lists.workspace), &lists.scale,
                       *cpu.stream),
              refused("sign_pack: dtype of array is int32"));
  EXPECT_THAT(
      SignPack(lists.pack, {}, absl::MakeSpan(lists.workspace).first(2), &lists.scale, *cpu.stream),
      refused("sign_pack: workspace has 2 doubles, the list needs 3"));
  const auto unpack = [&](const SignUnpackParameters& parameters) {
    return SignUnpack(lists.unpack, {DType::kFloat32, parameters}, *cpu.stream);
  };
  EXPECT_THAT(unpack({0, 0, 1.0f}), refused("sign_unpack: ranks is 0, must be at least 1"));
  EXPECT_THAT(unpack({2, 65, 1.0f}), refused("stride is 65, must be a multiple of 64"));
  EXPECT_THAT(unpack({2, 128, 1.0f}), refused("but a message of segment 0 has 192 bytes"));
  EXPECT_THAT(unpack({1, 0, kInfinity}), refused("factor is inf, must be finite"));
}

}  // namespace
}  // namespace brigade::kernels
