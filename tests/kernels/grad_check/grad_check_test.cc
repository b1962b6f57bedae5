#include "brigade/kernels/grad_check/grad_check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "brigade/kernels/grad_check/grad_check_cpu.h"
#include "brigade/kernels/grad_check/grad_check_tile.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/sparse_array.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/sums.h"
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

// Exponents so far apart that the squares' sum rounds at every step: another order, other bits.
float Scattered(std::mt19937& random) {
  std::normal_distribution<float> normal;
  return std::ldexp(normal(random), static_cast<int>(random() % 27) - 14);
}

template <typename Grad>
class GradList {
 public:
  GradList(const std::vector<int64_t>& sizes, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      arrays.emplace_back(sizes[i], static_cast<int64_t>(i % 11));
      for (int64_t j = 0; j < sizes[i]; ++j) arrays.back()[j] = Grad(Scattered(random));
      segments.push_back({arrays.back().data(), sizes[i]});
    }
    workspace.resize(GradCheckWorkspaceSize(segments));
  }

  spec::GradStats Specified() const {
    std::vector<std::vector<float>> values;
    for (const auto& array : arrays) values.push_back(Values(array));
    return spec::SumOfSquares(values);
  }

  std::deque<GuardedArray<Grad>> arrays;
  std::vector<GradSegment> segments;
  std::vector<double> workspace;
};

void ExpectSame(const GradStats& actual, const spec::GradStats& wanted, const std::string& how) {
  EXPECT_EQ(std::memcmp(&actual.sum_of_squares, &wanted.sum_of_squares, sizeof(double)), 0)
      << how << ": " << actual.sum_of_squares << " and " << wanted.sum_of_squares;
  EXPECT_EQ(actual.all_finite, wanted.all_finite ? 1 : 0) << how;
}

// The sum of lanes at their places, by the threads of a warp.
double SumOfLanes(const double* lanes) {
  double sums[kWarp];
  for (int thread = 0; thread < kWarp; ++thread) sums[thread] = HalveToWarp(lanes, thread);
  for (int half = kWarp / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] = precision::Add(sums[j], sums[j + half]);
  }
  return sums[0];
}

// What the CUDA kernels do, thread by thread between the places where threads meet.
template <typename Grad>
double SumOfTile(const GradTile<Grad>& tile) {
  double lanes[kLanePlaces];
  std::fill(lanes, lanes + kLanePlaces, -1.0);  // each must be written
  for (int thread = 0; thread < kWarp; ++thread) SumLanes(tile, thread, lanes);
  const double sum = SumOfLanes(lanes);
  bool overflow = false;
  for (int thread = 0; MayOverflow(sum) && thread < kWarp; ++thread) {
    overflow = overflow || FindOverflow(tile, thread);
  }
  return overflow ? kTileOverflow : sum;
}

template <typename Grad>
GradStats RunGpuBodies(GradList<Grad>& list) {
  using Batch = decltype(GradArguments<>::batch);
  auto batch = std::make_unique<Batch>();
  int64_t tiles = 0;
  ForEachBatch(list.segments.data(), list.segments.size(), kMaxGridBlocks, GradTiles, *batch, true,
               [&](int64_t tiles_before) {
                 for (int64_t index = 0; index < batch->tiles(); ++index) {
                   list.workspace[tiles_before + index] =
                       SumOfTile(GradTile<Grad>::Find(*batch, index));
                 }
                 tiles = tiles_before + batch->tiles();
                 return true;
               });
  double lanes[kLanePlaces];
  for (int lane = 0; lane < kGradLanes; ++lane) {
    lanes[LanePlace(lane)] = SumOfTileSums<5>(list.workspace.data(), tiles, lane);
  }
  return StatsOf(SumOfLanes(lanes));
}

std::vector<std::vector<int64_t>> Lists() {
  std::vector<int64_t> small = InterestingSizes();
  for (const int64_t n : {255, 256, 257, 511, 512, 513, 8191, 8192, 8193, 16384, 100003}) {
    small.push_back(n);
  }
  // More tiles than lanes in the second step, and more segments than one launch takes.
  return {small, {}, {0}, {0, 5, 0}, {3'000'000}, std::vector<int64_t>(1500, 3)};
}

template <typename Grad>
class GradCheckTypedTest : public ::testing::Test {};
using Grads = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(GradCheckTypedTest, Grads);

TYPED_TEST(GradCheckTypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  for (const std::vector<int64_t>& sizes : Lists()) {
    GradList<TypeParam> list(sizes, 31);
    const spec::GradStats wanted = list.Specified();
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      GradStats stats = {-1.0, -1};
      ASSERT_OK(GradCheck(list.segments, precision::kDType<TypeParam>,
                          absl::MakeSpan(list.workspace), &stats, stream));
      ASSERT_OK(stream.Synchronize());
      ExpectSame(stats, wanted, how);
    });
  }
}

// In runs of 1, 2, 3, ... segments, the last run first.
TYPED_TEST(GradCheckTypedTest, GivesTheSameBitsInHalves) {
  for (const std::vector<int64_t>& sizes : Lists()) {
    GradList<TypeParam> list(sizes, 38);
    const spec::GradStats wanted = list.Specified();
    struct Run {
      absl::Span<const GradSegment> segments;
      absl::Span<double> tile_sums;
    };
    std::vector<Run> runs;
    const absl::Span<const GradSegment> segments = list.segments;
    const absl::Span<double> workspace = absl::MakeSpan(list.workspace);
    int64_t tiles = 0;
    for (size_t begin = 0; begin < segments.size(); begin += runs.size()) {
      const auto some = segments.subspan(begin, runs.size() + 1);
      const int64_t needed = GradCheckWorkspaceSize(some);
      runs.push_back({some, workspace.subspan(tiles, needed)});
      tiles += needed;
    }
    std::reverse(runs.begin(), runs.end());
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      GradStats stats = {-1.0, -1};
      for (const Run& run : runs) {
        ASSERT_OK(GradTileSums(run.segments, precision::kDType<TypeParam>, run.tile_sums, stream));
      }
      ASSERT_OK(GradCheckFinish(workspace, &stats, stream));
      ASSERT_OK(stream.Synchronize());
      ExpectSame(stats, wanted, how);
    });
  }
}

TYPED_TEST(GradCheckTypedTest, GivesTheSpecificationsBitsInTheGpuThreads) {
  for (const std::vector<int64_t>& sizes : Lists()) {
    GradList<TypeParam> list(sizes, 32);
    ExpectSame(RunGpuBodies(list), list.Specified(), "GPU threads");
  }
}

// The first and the last tiles of a huge segment between others; the memory between them is never
// touched.
TYPED_TEST(GradCheckTypedTest, GivesTheSpecificationsBitsPast2To31Elements) {
  constexpr int64_t kSize = (int64_t{1} << 31) + 4099;
  const SparseArray<TypeParam> huge(kSize, 3);
  const SparseArray<TypeParam> small(9000);
  const std::vector<GradSegment> segments = {
      {nullptr, 0}, {small.data(), 9000}, {nullptr, 0}, {huge.data(), kSize}, {small.data(), 1}};
  using Batch = std::decay_t<decltype(std::declval<GradArguments<>>().batch)>;
  const auto batch = std::make_unique<Batch>();
  const auto check = [&](int64_t) {
    const int64_t tiles = batch->tiles();
    EXPECT_EQ(tiles, 2 + ((int64_t{1} << 18) + 1) + 1);
    std::mt19937 random(37);
    for (const int64_t tile : {int64_t{2}, tiles - 3, tiles - 2}) {
      const int64_t begin = (tile - 2) * kGradTile;
      const int64_t size = std::min(kGradTile, kSize - begin);
      std::vector<float> values;
      for (int64_t i = begin; i < begin + size; ++i) {
        huge[i] = TypeParam(Scattered(random));
        values.push_back(static_cast<float>(huge[i]));
      }
      ExpectSame(StatsOf(SumOfTile(GradTile<TypeParam>::Find(*batch, tile))),
                 spec::SumOfSquares({values}), "tile " + std::to_string(tile));
    }
    return true;
  };
  EXPECT_TRUE(ForEachBatch(segments.data(), segments.size(), kMaxGridBlocks, GradTiles, *batch,
                           true, check));
}

TYPED_TEST(GradCheckTypedTest, FindsABadValueAnywhereOnEveryTarget) {
  GradList<TypeParam> list({33, 0, 20000, 7}, 33);
  const std::vector<float> bad_values = {kInfinity, -kInfinity, std::nanf("")};
  for (size_t s = 0; s < list.arrays.size(); ++s) {
    for (int64_t i = 0; i < list.arrays[s].size();
         i += std::max<int64_t>(1, list.arrays[s].size() / 37)) {
      const TypeParam good = list.arrays[s][i];
      list.arrays[s][i] = TypeParam(bad_values[i % 3]);
      const spec::GradStats specified = list.Specified();
      EXPECT_EQ(specified.all_finite, 0);
      OnEveryCpu([&](device::Stream& stream, const std::string& how) {
        GradStats stats = {};
        ASSERT_OK(GradCheck(list.segments, precision::kDType<TypeParam>,
                            absl::MakeSpan(list.workspace), &stats, stream));
        ASSERT_OK(stream.Synchronize());
        ExpectSame(stats, specified, how);
      });
      ExpectSame(RunGpuBodies(list), specified, "GPU threads");
      list.arrays[s][i] = good;
    }
  }
}

// Between pages that end the process when they are read; sanitizers do not see assembly.
template <typename T>
class BetweenPages {
 public:
  explicit BetweenPages(int64_t bytes)
      : page_(sysconf(_SC_PAGESIZE)), inside_((bytes + page_ - 1) / page_ * page_) {
    pages_ = static_cast<char*>(
        mmap(nullptr, inside_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(pages_ + page_, inside_, PROT_READ | PROT_WRITE), 0);
    std::fill(AtBegin(), AtEnd(0), T(1.0f));
  }
  ~BetweenPages() { munmap(pages_, inside_ + 2 * page_); }

  T* AtBegin() const { return reinterpret_cast<T*>(pages_ + page_); }
  T* AtEnd(int64_t size) const { return reinterpret_cast<T*>(pages_ + page_ + inside_) - size; }

 private:
  const int64_t page_, inside_;
  char* pages_;
};

TYPED_TEST(GradCheckTypedTest, ReadsNothingOutsideOnAnyCpu) {
  const BetweenPages<TypeParam> memory(int64_t{3} * kGradTile * sizeof(float));
  SimdTargets restored;
  for (const SimdTarget target : SimdTargets::All()) {
    SetSimdTarget(target);
    for (const int64_t rows : {0, 1, 2, 31, 32, 64}) {
      for (int64_t rest = 0; rest < kGradLanes; ++rest) {
        const int64_t size = rows * kGradLanes + rest;
        for (const TypeParam* const grad : {memory.AtBegin(), memory.AtEnd(size)}) {
          double sums[3] = {};
          GradTileSumsRange<TypeParam>({grad, size}, 0, size, sums);
          ASSERT_EQ(sums[0] + sums[1] + sums[2], size) << "target " << static_cast<int>(target);
        }
      }
    }
  }
}

TEST(GradCheckTest, JudgesFinitenessByTheElementAndNotByTheSum) {
  const CpuRun cpu = OnCpu(1);
  GradList<float> list({10000}, 34);
  GradStats stats = {};
  const auto check = [&] {
    ASSERT_OK(GradCheck(list.segments, DType::kFloat32, absl::MakeSpan(list.workspace), &stats,
                        *cpu.stream));
    ASSERT_OK(cpu.stream->Synchronize());
    ExpectSame(stats, list.Specified(), "CPU");
    ExpectSame(RunGpuBodies(list), list.Specified(), "GPU threads");
  };
  // The sum is 10,000 times what a float holds, but each square fits.
  const float largest = std::nextafter(0x1p64f, 0.0f);
  for (int64_t i = 0; i < 10000; ++i) list.arrays[0][i] = i % 2 == 0 ? largest : -largest;
  check();
  EXPECT_EQ(stats.all_finite, 1);
  EXPECT_GT(stats.sum_of_squares, 1e42);
  list.arrays[0][9999] = 0x1p64f;
  check();
  EXPECT_EQ(stats.all_finite, 0);
  EXPECT_EQ(stats.sum_of_squares, std::numeric_limits<double>::infinity());
}

TEST(GradCheckTest, SeesGradientsTooSmallForAFloatsSquare) {
  const CpuRun cpu = OnCpu(1);
  GradList<float> list({4}, 35);
  for (int64_t i = 0; i < 4; ++i) list.arrays[0][i] = 0x1p-140f;
  GradStats stats = {};
  ASSERT_OK(GradCheck(list.segments, DType::kFloat32, absl::MakeSpan(list.workspace), &stats,
                      *cpu.stream));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_EQ(stats.sum_of_squares, 0x1p-278);
}

TEST(GradCheckTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("grad_check");
  std::vector<GradSegment> segments = {{nullptr, 10}, {nullptr, 11}};
  double* workspace;
  GradStats* stats;
  arrays.Add("grad of segment 0", segments[0].grad, 10, 4, 4, BadArrays::kRead);
  arrays.Add("grad of segment 1", segments[1].grad, 11, 4, 4, BadArrays::kRead);
  arrays.Add("workspace", workspace, 2, BadArrays::kWritten);
  arrays.Add("stats", stats, 1, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu.stream, [&] {
    return GradCheck(segments, DType::kFloat32, absl::MakeSpan(workspace, 2), stats, *cpu.stream);
  });
}

TEST(GradCheckTest, ItsHalvesRejectEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  std::vector<GradSegment> segments = {{nullptr, 10}};
  double* workspace;
  GradStats* stats;
  BadArrays first("grad_check"), second("grad_check");
  first.Add("grad of segment 0", segments[0].grad, 10, 4, 4, BadArrays::kRead);
  first.Add("workspace", workspace, 1, BadArrays::kWritten);
  first.ExpectRefused(*cpu.stream, [&] {
    return GradTileSums(segments, DType::kFloat32, absl::MakeSpan(workspace, 1), *cpu.stream);
  });
  second.Add("workspace", workspace, 3, BadArrays::kWritten);
  second.Add("stats", stats, 1, BadArrays::kWritten);
  second.ExpectRefused(*cpu.stream, [&] {
    return GradCheckFinish(absl::MakeSpan(workspace, 3), stats, *cpu.stream);
  });
}

TEST(GradCheckTest, RejectsASmallWorkspaceAndUnsupportedTypes) {
  const CpuRun cpu = OnCpu(1);
  GradList<float> list({10, 9000}, 36);
  GradStats stats = {7.0, 7};
  const auto run = [&](DType dtype, absl::Span<double> workspace, GradStats* out) {
    return GradCheck(list.segments, dtype, workspace, out, *cpu.stream);
  };
  const absl::Span<double> workspace = absl::MakeSpan(list.workspace);
  using absl::StatusCode;
  EXPECT_THAT(run(DType::kFloat32, workspace.first(2), &stats),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("workspace has 2 doubles, the list needs 3")));
  EXPECT_THAT(GradTileSums(list.segments, DType::kFloat32, workspace.first(2), *cpu.stream),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("workspace has 2 doubles, the list needs 3")));
  EXPECT_THAT(run(DType::kInt32, workspace, &stats),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("dtype of grad is int32")));
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_EQ(stats.sum_of_squares, 7.0);
}

}  // namespace
}  // namespace brigade::kernels
