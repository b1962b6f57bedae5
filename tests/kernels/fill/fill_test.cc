#include "brigade/kernels/fill/fill.h"

#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "brigade/kernels/fill/fill_tile.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/sparse_array.h"
#include "brigade/tests/kernels/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::HasSubstr;

template <typename T>
struct FillList {
  explicit FillList(const std::vector<int64_t>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      arrays.emplace_back(sizes[i], static_cast<int64_t>(i % 17));
      segments.push_back({arrays.back().data(), sizes[i]});
    }
  }

  void ExpectAll(T value, const std::string& how) const {
    for (const auto& array : arrays) {
      ASSERT_TRUE(array.GuardsAreIntact()) << how;
      for (int64_t i = 0; i < array.size(); ++i) {
        ASSERT_EQ(std::memcmp(&array[i], &value, sizeof(T)), 0) << how << ", element " << i;
      }
    }
  }

  std::deque<GuardedArray<T>> arrays;
  std::vector<FillSegment> segments;
};

template <typename T>
std::unique_ptr<FillArguments<>> Arguments(T value) {
  auto arguments = std::make_unique<FillArguments<>>();
  for (size_t i = 0; i < sizeof(FillPattern); i += sizeof(value)) {
    std::memcpy(reinterpret_cast<char*>(&arguments->pattern) + i, &value, sizeof(value));
  }
  arguments->element_bytes = sizeof(value);
  return arguments;
}

template <typename T>
class FillTypedTest : public ::testing::Test {};
using AllTypes = ::testing::Types<float, Half, BFloat16, double, int32_t, int64_t, uint8_t>;
TYPED_TEST_SUITE(FillTypedTest, AllTypes);

TYPED_TEST(FillTypedTest, SetsEveryElementOnTheCpu) {
  for (const auto& sizes : {InterestingSizes(), std::vector<int64_t>{5, 5'000'001}}) {
    const CpuRun cpu = OnCpu(3);
    FillList<TypeParam> list(sizes);
    ASSERT_OK(Fill(list.segments, precision::kDType<TypeParam>, 77.0, *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    list.ExpectAll(TypeParam(77.0), "CPU");
  }
}

TYPED_TEST(FillTypedTest, SetsEveryElementInTheGpuThreads) {
  std::vector<int64_t> sizes = InterestingSizes();
  sizes.resize(kMaxFillSegments + 10, 3);  // more than one launch takes
  sizes.insert(sizes.end(), {16383, 16384, 16385, 50000});
  FillList<TypeParam> list(sizes);
  const TypeParam value(77.0);
  const auto arguments = Arguments(value);
  ForEachBatch(
      list.segments.data(), list.segments.size(), kMaxGridBlocks,
      [](const FillSegment& s) { return FillTiles(s, sizeof(TypeParam)); }, arguments->batch, true,
      [&](int64_t) {
        ForEachGpuThread(arguments->batch.tiles(), kTileThreads,
                         [&](int64_t tile, int thread) { FillThread(*arguments, tile, thread); });
        return true;
      });
  list.ExpectAll(value, "GPU threads");
}

// The first and the last tile of a huge segment between others; the memory between them is never
// touched.
TYPED_TEST(FillTypedTest, SetsTheEndsOfMoreThan2To31Elements) {
  constexpr int64_t kSize = (int64_t{1} << 31) + 4099;
  const SparseArray<TypeParam> huge(kSize, 3);
  const SparseArray<TypeParam> small(5);
  const std::vector<FillSegment> segments = {
      {nullptr, 0}, {small.data(), 5}, {nullptr, 0}, {huge.data(), kSize}, {small.data(), 5}};
  const TypeParam value(77.0);
  const auto arguments = Arguments(value);
  ForEachBatch(
      segments.data(), segments.size(), kMaxGridBlocks,
      [](const FillSegment& s) { return FillTiles(s, sizeof(TypeParam)); }, arguments->batch, true,
      [&](int64_t) {
        for (const int64_t tile : {int64_t{1}, arguments->batch.tiles() - 2}) {
          for (int thread = 0; thread < kTileThreads; ++thread) {
            FillThread(*arguments, tile, thread);
          }
        }
        return true;
      });
  // A tile holds 16 KiB from a sector on.
  constexpr int64_t kBytes = sizeof(TypeParam);
  constexpr int64_t kTile = 16384 / kBytes;
  constexpr int64_t kShift = 3 * kBytes % kSectorBytes / kBytes;
  constexpr int64_t kLast =
      (kSize + kShift - 1) / kTile * kTile - kShift;  // begin of the last tile
  const auto expect = [&](int64_t begin, int64_t end, TypeParam wanted) {
    for (int64_t i = begin; i < end; ++i) {
      ASSERT_EQ(std::memcmp(&huge[i], &wanted, kBytes), 0) << "element " << i;
    }
  };
  expect(-3, 0, TypeParam());
  expect(0, kTile - kShift, value);
  expect(kTile - kShift, kTile, TypeParam());
  expect(kLast - kTile, kLast, TypeParam());
  expect(kLast, kSize, value);
  expect(kSize, kSize + 1, TypeParam());
}

TEST(FillTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("fill");
  std::vector<FillSegment> segments = {{nullptr, 10}, {nullptr, 11}};
  arrays.Add("data of segment 0", segments[0].data, 10, 8, 8, BadArrays::kWritten);
  arrays.Add("data of segment 1", segments[1].data, 11, 8, 8, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu.stream,
                       [&] { return Fill(segments, DType::kInt64, 7.0, *cpu.stream); });
}

TEST(FillTest, RejectsValuesThatAnIntegerTypeDoesNotHave) {
  const CpuRun cpu = OnCpu(1);
  FillList<int64_t> list({4});
  const auto expect = [&](DType dtype, double value, const char* message) {
    EXPECT_THAT(Fill(list.segments, dtype, value, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect(DType::kInt32, 1.5, "fill: value 1.5 is not a value of int32");
  expect(DType::kInt32, 2147483648.0, "is not a value of int32");
  expect(DType::kInt64, 0x1p63, "is not a value of int64");
  expect(DType::kUint8, -1, "value -1 is not a value of uint8");
  expect(DType::kUint8, 256, "value 256 is not a value of uint8");
  expect(DType::kInt64, std::numeric_limits<double>::quiet_NaN(), "nan is not a value of int64");
  expect(static_cast<DType>(42), 0, "dtype is invalid: 42");
  ASSERT_OK(cpu.stream->Synchronize());
  list.ExpectAll(0, "after errors");
}

}  // namespace
}  // namespace brigade::kernels
