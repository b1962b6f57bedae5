#include "brigade/kernels/cast/cast.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "brigade/kernels/cast/cast_tile.h"
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

template <typename Source, typename Target>
class CastLists {
 public:
  CastLists(const std::vector<int64_t>& sizes, uint32_t seed, int spread) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < sizes.size(); ++i) {
      sources.emplace_back(sizes[i], static_cast<int64_t>(i % 9));
      targets.emplace_back(sizes[i], static_cast<int64_t>(i % 9) + spread);
      FillTypical(sources.back(), random, 1000.0f);
      FillTypical(targets.back(), random);
      wanted.push_back(Values(targets.back()));
      segments.push_back({sources.back().data(), targets.back().data(), sizes[i]});
    }
  }

  void Specify(float scale, bool accumulate) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      for (size_t j = 0; j < wanted[i].size(); ++j) {
        const float product = static_cast<float>(sources[i][j]) * scale;
        const float sum = accumulate ? wanted[i][j] + product : product;
        wanted[i][j] = spec::Round(kFormat<Target>, sum);
      }
    }
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_TRUE(Matches(targets[i], wanted[i])) << how << ", segment " << i;
      EXPECT_TRUE(sources[i].GuardsAreIntact());
    }
  }

  void RunGpuBodies(const float* scale, bool accumulate) {
    auto arguments = std::make_unique<CastArguments<>>();
    arguments->scale = scale;
    const auto tiles_of = [](const CastSegment& s) {
      return CastLayout<Source, Target>(s).Tiles(s.size);
    };
    ForEachBatch(segments.data(), segments.size(), kMaxGridBlocks, tiles_of, arguments->batch, true,
                 [&](int64_t) {
                   ForEachGpuThread(
                       arguments->batch.tiles(), kTileThreads, [&](int64_t tile, int thread) {
                         accumulate ? CastThread<Source, Target, true>(*arguments, tile, thread)
                                    : CastThread<Source, Target, false>(*arguments, tile, thread);
                       });
                   return true;
                 });
  }

  std::deque<GuardedArray<Source>> sources;
  std::deque<GuardedArray<Target>> targets;
  std::vector<std::vector<float>> wanted;
  std::vector<CastSegment> segments;
};

template <typename Types>
class CastTypedTest : public ::testing::Test {
 protected:
  using Source = typename Types::first_type;
  using Target = typename Types::second_type;
  using Lists = CastLists<Source, Target>;
  static constexpr float kScale = 0.3f;

  static CastOptions Options(const float* scale, bool accumulate) {
    return {precision::kDType<Source>, precision::kDType<Target>, scale, accumulate};
  }
};

using TypePairs =
    ::testing::Types<std::pair<float, float>, std::pair<float, Half>, std::pair<float, BFloat16>,
                     std::pair<Half, float>, std::pair<Half, Half>, std::pair<Half, BFloat16>,
                     std::pair<BFloat16, float>, std::pair<BFloat16, Half>,
                     std::pair<BFloat16, BFloat16>>;
TYPED_TEST_SUITE(CastTypedTest, TypePairs);

TYPED_TEST(CastTypedTest, GivesTheSpecificationsBitsOnEveryCpu) {
  for (const bool accumulate : {false, true}) {
    for (const float* scale : {static_cast<const float*>(nullptr), &this->kScale}) {
      OnEveryCpu([&](device::Stream& stream, const std::string& how) {
        typename TestFixture::Lists lists(InterestingSizes(), 51, 1);
        ASSERT_OK(Cast(lists.segments, this->Options(scale, accumulate), stream));
        ASSERT_OK(stream.Synchronize());
        lists.Specify(scale == nullptr ? 1.0f : *scale, accumulate);
        lists.ExpectMatch(how);
      });
    }
  }
}

TYPED_TEST(CastTypedTest, GivesTheSpecificationsBitsInTheGpuThreads) {
  for (const bool accumulate : {false, true}) {
    for (const int spread : {0, 1, 4}) {
      typename TestFixture::Lists lists(InterestingSizes(), 52, spread);
      lists.RunGpuBodies(&this->kScale, accumulate);
      lists.Specify(this->kScale, accumulate);
      lists.ExpectMatch("GPU threads");
    }
  }
}

TYPED_TEST(CastTypedTest, StreamsLargeTargetsOutWithTheSameBits) {
  typename TestFixture::Lists lists({1, 2'100'001, 77, 33'333}, 53, 3);
  lists.Specify(1.0f, false);
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    for (auto& target : lists.targets)
      std::fill(target.data(), target.data() + target.size(), typename TestFixture::Target());
    ASSERT_OK(Cast(lists.segments, this->Options(nullptr, false), stream));
    ASSERT_OK(stream.Synchronize());
    lists.ExpectMatch(how);
  });
}

// The first and the last tile of a huge segment between others; the memory between them is never
// touched.
TEST(CastTest, ConvertsTheEndsOfMoreThan2To31Elements) {
  constexpr int64_t kSize = (int64_t{1} << 31) + 4099;
  for (const int64_t spread : {0, 1}) {  // 1: single elements
    const SparseArray<Half> source(kSize, 5);
    const SparseArray<float> target(kSize, 5 + spread);
    const SparseArray<float> small(5);
    const auto arguments = std::make_unique<CastArguments<>>();
    const std::vector<CastSegment> segments = {{nullptr, nullptr, 0},
                                               {small.data(), small.data(), 5},
                                               {nullptr, nullptr, 0},
                                               {source.data(), target.data(), kSize},
                                               {small.data(), small.data(), 5}};
    constexpr int64_t kTile = kTileThreads * kPackSize;
    constexpr int64_t kShift = 5;
    // The begin of the last tile.
    constexpr int64_t kLast = (kSize + kShift - 1) / kTile * kTile - kShift;
    const auto value = [](int64_t i) { return static_cast<float>(i % 1000 + 1); };
    for (int64_t i = 0; i < 2 * kTile; ++i) source[i] = Half(value(i));
    for (int64_t i = kLast - kTile; i < kSize; ++i) source[i] = Half(value(i));
    ForEachBatch(
        segments.data(), segments.size(), kMaxGridBlocks,
        [](const CastSegment& s) { return CastLayout<Half, float>(s).Tiles(s.size); },
        arguments->batch, true,
        [&](int64_t) {
          for (const int64_t tile : {int64_t{1}, arguments->batch.tiles() - 2}) {
            for (int thread = 0; thread < kTileThreads; ++thread) {
              CastThread<Half, float, false>(*arguments, tile, thread);
            }
          }
          return true;
        });
    const auto expect = [&](int64_t begin, int64_t end, bool written) {
      for (int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(target[i], written ? value(i) : 0.0f) << "element " << i << ", spread " << spread;
      }
    };
    expect(-5, 0, false);
    expect(0, kTile - kShift, true);
    expect(kTile - kShift, 2 * kTile, false);
    expect(kLast - kTile, kLast, false);
    expect(kLast, kSize, true);
    expect(kSize, kSize + 1, false);
  }
}

TEST(CastTest, TakesMoreSegmentsThanOneLaunchHolds) {
  CastLists<float, BFloat16> lists(std::vector<int64_t>(2500, 2), 54, 0);
  lists.RunGpuBodies(nullptr, false);
  lists.Specify(1.0f, false);
  lists.ExpectMatch("GPU threads");
}

TEST(CastTest, RejectsEveryBadArray) {
  const CpuRun cpu = OnCpu(1);
  BadArrays arrays("cast");
  CastOptions options = {DType::kFloat16, DType::kFloat32, nullptr, false};
  std::vector<CastSegment> segments = {{nullptr, nullptr, 10}, {nullptr, nullptr, 11}};
  for (int i = 0; i < 2; ++i) {
    const std::string of = " of segment " + std::to_string(i);
    arrays.Add("source" + of, segments[i].source, 10 + i, 2, 2, BadArrays::kRead);
    arrays.Add("target" + of, segments[i].target, 10 + i, 4, 4, BadArrays::kWritten);
  }
  arrays.Add("scale", options.scale, 1, BadArrays::kReadUnlessNull);
  arrays.ExpectRefused(*cpu.stream, [&] { return Cast(segments, options, *cpu.stream); });
}

TEST(CastTest, RejectsUnsupportedTypes) {
  const CpuRun cpu = OnCpu(1);
  CastLists<float, float> lists({10, 20}, 55, 0);
  CastOptions options;
  const auto expect = [&](const char* message) {
    EXPECT_THAT(Cast(lists.segments, options, *cpu.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  options.source_dtype = DType::kInt64;
  expect("cast: dtype of source is int64");
  options = {};
  options.target_dtype = static_cast<DType>(99);
  expect("cast: dtype of target is invalid");
  ASSERT_OK(cpu.stream->Synchronize());
  EXPECT_TRUE(Matches(lists.targets[1], lists.wanted[1]));
}

}  // namespace
}  // namespace brigade::kernels
