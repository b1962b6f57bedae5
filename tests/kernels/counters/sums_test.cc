// Amax and the gradients' check as nvcc compiles them: the CPU's bits, and whole sectors.

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/kernels/amax/amax.h"
#include "brigade/kernels/amax/amax_tile.h"
#include "brigade/kernels/grad_check/grad_check.h"
#include "brigade/kernels/grad_check/grad_check_tile.h"
#include "brigade/tests/kernels/counters/counted_launch.h"
#include "brigade/tests/kernels/counters/expect_goals.h"
#include "brigade/tests/kernels/testing.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

constexpr int64_t kSize = (int64_t{1} << 17) + 77;

// Without overflows, which the gradients' check would look for in a second pass.
template <typename T>
std::vector<T> Typical() {
  std::mt19937 random(81);
  std::normal_distribution<float> normal;
  std::vector<T> values(static_cast<size_t>(kSize));
  for (T& value : values) value = T(normal(random));
  return values;
}

template <typename T>
class SumCountersTest : public ::testing::Test {};
using Types = ::testing::Types<float, precision::Half, precision::BFloat16>;
TYPED_TEST_SUITE(SumCountersTest, Types);

TYPED_TEST(SumCountersTest, AmaxLoadsWholeSectors) {
  using T = TypeParam;
  const std::vector<T> values = Typical<T>();
  const CpuRun cpu = OnCpu(1);
  AmaxWorkspace workspace;
  AmaxResult wanted;
  ASSERT_OK(Amax(values.data(), kSize, {precision::kDType<T>, nullptr}, &workspace, &wanted,
                 *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  for (const int64_t shift : {0, 1, 7}) {
    CountedKernels device("amax");
    const T* const array = device.Upload("array", values.data(), kSize, shift);
    auto* const parts = static_cast<int32_t*>(device.Allocate("parts", sizeof(AmaxWorkspace)));
    auto* const result = static_cast<AmaxResult*>(device.Allocate("result", sizeof(AmaxResult)));
    // A third of the tiles: each block has several.
    const int64_t blocks = AmaxLayout(array).Tiles(kSize) / 3;
    const float* const no_scale = nullptr;
    const std::string name = absl::StrCat("amax ", TypeName<T>::kInTable, ", shift ", shift);
    ExpectWholeSectors(name,
                       device.Launch(absl::StrCat("AmaxKernel<", TypeName<T>::kInKernel, ">"),
                                     kSize, blocks, kTileThreads, array, kSize, no_scale, parts),
                       {sizeof(T), sizeof(T)});
    const Counted finish =
        device.Launch("FinishKernel", kSize, 1, kTileThreads, parts, blocks, result);
    ExpectNoFindings(name, finish);
    EXPECT_EQ(std::memcmp(&device.Download(result, 1)[0], &wanted, sizeof(wanted)), 0) << name;
  }
}

TYPED_TEST(SumCountersTest, GradCheckLoadsWholeSectors) {
  using Grad = TypeParam;
  const std::vector<Grad> values = Typical<Grad>();
  std::vector<double> wanted(static_cast<size_t>(CeilDiv(kSize, kGradTile)));
  const CpuRun cpu = OnCpu(1);
  GradStats stats;
  const GradSegment segment = {values.data(), kSize};
  ASSERT_OK(GradCheck({&segment, 1}, precision::kDType<Grad>, absl::MakeSpan(wanted), &stats,
                      *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  const auto tiles = static_cast<int64_t>(wanted.size());
  for (const int64_t shift : {0, 1, 5, 12}) {
    CountedKernels device("grad_check");
    const Grad* const grad = device.Upload("grad", values.data(), kSize, shift);
    auto* const sums = static_cast<double*>(device.Allocate("tile sums", tiles * sizeof(double)));
    auto* const result = static_cast<GradStats*>(device.Allocate("stats", sizeof(GradStats)));
    GradArguments<kFewSegments> arguments = {};
    arguments.tile_sums = sums;
    arguments.batch.segments[0] = {grad, kSize};
    arguments.batch.first_tile[1] = tiles;
    arguments.batch.count = 1;
    const std::string name =
        absl::StrCat("grad_check ", TypeName<Grad>::kInTable, ", shift ", shift);
    ExpectWholeSectors(
        name,
        device.Launch(
            absl::StrCat("TileSumsKernel<", TypeName<Grad>::kInKernel, ", ", kFewSegments, ">"),
            kSize, CeilDiv(tiles, kTileThreads / kWarp), kTileThreads, arguments),
        {sizeof(Grad), sizeof(Grad)});
    EXPECT_EQ(device.Download(sums, tiles), wanted) << name;
    ExpectNoFindings(name,
                     device.Launch("FinishKernel", kSize, 1, kGradLanes, sums, tiles, result));
    EXPECT_EQ(std::memcmp(&device.Download(result, 1)[0], &stats, sizeof(stats)), 0) << name;
  }
}

// As many tiles as 10^9 elements have.
TEST(GradCheckCountersTest, SumsTheTilesInManyBlocks) {
  constexpr int64_t kTiles = 122'071;
  std::vector<double> sums(kTiles);
  std::mt19937 random(82);
  for (double& sum : sums) sum = std::ldexp(std::fabs(TypicalValue(random)), random() % 40);
  double lanes[kGradLanes] = {};
  for (int64_t i = 0; i < kTiles; ++i) lanes[i % kGradLanes] += sums[i];
  for (int half = kGradLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  CountedKernels device("grad_check");
  double* const device_sums = device.Upload("tile sums", sums.data(), kTiles);
  auto* const result = static_cast<GradStats*>(device.Allocate("stats", sizeof(GradStats)));
  const Counted in_lanes =
      device.Launch("LaneSumsKernel", kTiles, kGradLanes / kWarp, kWarp, device_sums, kTiles);
  ExpectNoFindings("lane sums", in_lanes);
  EXPECT_LE(in_lanes.load_sectors(), 1.0);
  const Counted finish = device.Launch("FinishKernel", kGradLanes, 1, kGradLanes, device_sums,
                                       int64_t{kGradLanes}, result);
  ExpectNoFindings("finish", finish);
  EXPECT_EQ(device.Download(result, 1)[0].sum_of_squares, lanes[0]);
}

}  // namespace
}  // namespace brigade::kernels
