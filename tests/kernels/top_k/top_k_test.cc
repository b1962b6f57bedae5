#include "brigade/kernels/top_k/top_k.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "brigade/kernels/top_k/top_k_cpu.h"
#include "brigade/tests/kernels/bad_arrays.h"
#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/spec/top_k.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::kernels {
namespace {

using ::brigade::testing::StatusIs;
using precision::BFloat16;
using precision::DType;
using precision::Half;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a sample of an array of this size is taken of: 32 of so many elements.
constexpr size_t kSampledSize = size_t{1} << 20;
constexpr size_t kSampleDistance = 1024;

// Of any payload and sign: NaN are equal.
float AnyNan(std::mt19937& random) {
  return __builtin_bit_cast(float, 0x7fc00000u | static_cast<uint32_t>(random() & 0x803fffffu));
}

// Arrays with results between guards, and what the specification selects.
template <typename T>
struct Lists {
  void Add(const std::vector<float>& from, int64_t k) {
    const auto offset = static_cast<int64_t>(arrays.size() % 9);
    const auto size = static_cast<int64_t>(from.size());
    arrays.emplace_back(size, offset);
    values.emplace_back(k, offset / 2);
    indices.emplace_back(k, offset % 4);
    workspaces.emplace_back(k == 0 ? 0 : TopKWorkspaceSize(size), 0);
    for (int64_t i = 0; i < size; ++i) arrays.back()[i] = T(from[static_cast<size_t>(i)]);
    segments.push_back({arrays.back().data(), values.back().data(), indices.back().data(),
                        workspaces.back().data(), size, k});
  }

  void Specify(bool clear) {
    for (size_t n = 0; n < arrays.size(); ++n) {
      std::vector<float> array = Values(arrays[n]);
      wanted_indices.push_back(spec::TopK(array, static_cast<size_t>(segments[n].k)));
      wanted_values.emplace_back();
      for (const int32_t i : wanted_indices[n]) {
        wanted_values[n].push_back(array[static_cast<size_t>(i)]);
        if (clear) array[static_cast<size_t>(i)] = 0.0f;
      }
      wanted_arrays.push_back(array);
    }
  }

  // So that a run which writes nothing does not pass by the one before it.
  void ClearResults() {
    for (GuardedArray<T>& each : values) std::fill_n(each.data(), each.size(), T(0.0f));
    for (GuardedArray<int32_t>& each : indices) std::fill_n(each.data(), each.size(), -1);
  }

  void ExpectMatch(const std::string& how) const {
    for (size_t n = 0; n < arrays.size(); ++n) {
      const std::string what = how + ", array " + std::to_string(n) + " of " +
                               std::to_string(segments[n].size) + ", k " +
                               std::to_string(segments[n].k);
      EXPECT_TRUE(Matches(values[n], wanted_values[n])) << what;
      EXPECT_TRUE(std::equal(wanted_indices[n].begin(), wanted_indices[n].end(), indices[n].data()))
          << what;
      EXPECT_TRUE(indices[n].GuardsAreIntact()) << what;
      EXPECT_TRUE(workspaces[n].GuardsAreIntact()) << what;
      EXPECT_TRUE(Matches(arrays[n], wanted_arrays[n])) << what;
    }
  }

  std::deque<GuardedArray<T>> arrays, values;
  std::deque<GuardedArray<int32_t>> indices;
  std::deque<GuardedArray<uint32_t>> workspaces;
  std::vector<TopKSegment> segments;
  std::vector<std::vector<int32_t>> wanted_indices;
  std::vector<std::vector<float>> wanted_values, wanted_arrays;
};

// Values of all kinds in arrays of all sizes, with k at both ends and between them.
template <typename T>
Lists<T> Cases() {
  Lists<T> lists;
  std::mt19937 random(91);
  std::normal_distribution<float> normal;
  std::vector<int64_t> sizes = InterestingSizes();
  for (const int64_t size : {int64_t{40'000}, int64_t{300'001}}) sizes.push_back(size);
  int kind = 0;
  for (const int64_t size : sizes) {
    for (const int64_t k : {int64_t{0}, int64_t{1}, size / 100, size / 2, size - 1, size}) {
      if (k < 0 || k > size) continue;
      // Sorting takes time: one k of the arrays that threads share.
      if (size > 100'000 && k != size / 100) continue;
      std::vector<float> array;
      for (int64_t i = 0; i < size; ++i) {
        switch (kind % 5) {
          case 0:
            array.push_back(TypicalValue(random));
            break;
          case 1:  // many equal magnitudes
            array.push_back(static_cast<float>(static_cast<int>(random() % 9) - 4));
            break;
          case 2:  // one magnitude
            array.push_back(random() % 2 == 0 ? 1.5f : -1.5f);
            break;
          case 3:  // keys that differ in their last bits alone
            array.push_back(
                __builtin_bit_cast(float, 0x3f800000u + static_cast<uint32_t>(random() % 3)));
            break;
          default:  // what is not finite, among zeros
            array.push_back(random() % 5 == 0   ? AnyNan(random)
                            : random() % 5 == 0 ? -std::numeric_limits<float>::infinity()
                            : random() % 2 == 0 ? -0.0f
                                                : normal(random));
        }
      }
      ++kind;
      lists.Add(array, k);
    }
  }
  return lists;
}

template <typename T>
class TopKTypedTest : public ::testing::Test {};
using Types = ::testing::Types<float, Half, BFloat16>;
TYPED_TEST_SUITE(TopKTypedTest, Types);

TYPED_TEST(TopKTypedTest, SelectsWhatTheSpecificationSelectsOnEveryCpu) {
  for (const bool clear : {false, true}) {
    Lists<TypeParam> wanted = Cases<TypeParam>();
    wanted.Specify(clear);
    OnEveryCpu([&](device::Stream& stream, const std::string& how) {
      Lists<TypeParam> lists = Cases<TypeParam>();
      lists.wanted_indices = wanted.wanted_indices;
      lists.wanted_values = wanted.wanted_values;
      lists.wanted_arrays = wanted.wanted_arrays;
      ASSERT_OK(TopK(lists.segments, {precision::kDType<TypeParam>, clear}, stream));
      ASSERT_OK(stream.Synchronize());
      lists.ExpectMatch(how);
    });
  }
}

TYPED_TEST(TopKTypedTest, AnyCutIntoChunksSelectsTheSame) {
  constexpr int64_t kSize = 5 * kTopKChunk + 77;
  for (const int64_t k : {int64_t{1}, int64_t{77}, int64_t{9000}, kSize}) {
    Lists<TypeParam> lists;
    std::mt19937 random(92);
    std::vector<float> array;
    for (int i = 0; i < kSize; ++i) array.push_back(static_cast<float>(random() % 1000));
    lists.Add(array, k);
    lists.Specify(false);
    const TopKSegment& s = lists.segments[0];
    const std::vector<std::pair<int64_t, int64_t>> ranges = {{2 * kTopKChunk, 4 * kTopKChunk},
                                                             {4 * kTopKChunk, kSize},
                                                             {0, kTopKChunk},
                                                             {kTopKChunk, 2 * kTopKChunk}};
    // Guesses that leave too few, some and all, as well as the sample's.
    for (const uint32_t least : {uint32_t{0}, TopKGuess<TypeParam>(s), TopKKey(990.0f)}) {
      const auto collect = [&](uint32_t from) {
        TopKFound found = {0, 0};
        for (const auto& [begin, end] : ranges) {
          const TopKFound part = TopKCollectRange<TypeParam>(s, from, begin, end);
          found.count += part.count;
          found.greatest = std::max(found.greatest, part.greatest);
        }
        return found;
      };
      uint32_t from = least;
      TopKFound found = collect(from);
      if (found.count < k) found = collect(from = 0);
      TopKSearch search = TopKSearchFrom(from, found, k);
      for (int passes = 0; !search.done; ++passes) {
        ASSERT_LT(passes, kTopKPasses);
        std::fill(s.workspace, s.workspace + kTopKBins, 0u);
        for (const auto& [begin, end] : ranges) {
          TopKCountBinsRange<TypeParam>(s, search, begin, end);
        }
        search = TopKPick<TypeParam>(s, search);
      }
      for (const auto& [begin, end] : ranges) {
        TopKCountChunksRange<TypeParam>(s, search.from, begin, end);
      }
      TopKPlaceChunks(s);
      for (const auto& [begin, end] : ranges) {
        TopKWriteRange<TypeParam>(s, {search.from, search.left}, false, begin, end);
      }
      lists.ExpectMatch("cut");
    }
  }
}

class TopKTest : public ::testing::Test {
 protected:
  TopKTest() : cpu_(OnCpu(1)) {}

  CpuRun cpu_;
};

// The sample sees 32 elements in a row of each 1024: here the smallest ones, or the greatest.
TEST_F(TopKTest, AMisleadingSampleChangesNothing) {
  for (const bool greatest : {false, true}) {
    for (const int64_t k : {int64_t{1}, int64_t{3000}}) {
      Lists<float> lists;
      std::vector<float> array(kSampledSize);
      for (size_t i = 0; i < array.size(); ++i) {
        array[i] = (i % kSampleDistance < 32) == greatest ? 1000.0f + static_cast<float>(i % 77)
                                                          : static_cast<float>(i % 1009) * 0.25f;
      }
      lists.Add(array, k);
      lists.Specify(false);
      for (const int threads : {1, 2}) {
        const CpuRun cpu = OnCpu(threads);
        ASSERT_OK(TopK(lists.segments, {}, *cpu.stream));
        ASSERT_OK(cpu.stream->Synchronize());
        lists.ExpectMatch("misled");
      }
    }
  }
}

// One chunk has more of the greatest than there is room for, and others have none; and an infinity
// far above all others makes the first bins wide.
TYPED_TEST(TopKTypedTest, CrowdedChunksAndOutliersChangeNothing) {
  constexpr int64_t kSize = 6 * kTopKChunk + 5;
  Lists<TypeParam> lists;
  std::mt19937 random(93);
  std::normal_distribution<float> normal;
  std::vector<float> array;
  for (int64_t i = 0; i < kSize; ++i) {
    array.push_back(normal(random) * (i / kTopKChunk == 3 ? 8.0f : 0.25f));
  }
  array[5] = std::numeric_limits<float>::infinity();
  for (const int64_t k : {int64_t{2}, int64_t{4000}, int64_t{12'000}}) lists.Add(array, k);
  lists.Specify(true);
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    for (auto& each : lists.arrays) {
      for (int64_t i = 0; i < kSize; ++i) each[i] = TypeParam(array[static_cast<size_t>(i)]);
    }
    lists.ClearResults();
    ASSERT_OK(TopK(lists.segments, {precision::kDType<TypeParam>, true}, stream));
    ASSERT_OK(stream.Synchronize());
    lists.ExpectMatch(how);
  });
}

// Arrays of one chunk, whose k greatest so far are kept: ascending ones, of which each element is
// one for a while, descending ones, and equal ones before and behind what is greater.
TYPED_TEST(TopKTypedTest, AnyOrderOfASmallArraySelectsTheSame) {
  Lists<TypeParam> lists;
  for (const int64_t size : {int64_t{2049}, int64_t{6700}, int64_t{40'000}, kTopKChunk}) {
    for (const int64_t k : {int64_t{1}, int64_t{20}, int64_t{100}, int64_t{900}}) {
      for (int order = 0; order < 4; ++order) {
        std::vector<float> array;
        for (int64_t i = 0; i < size; ++i) {
          const auto at = static_cast<float>(order == 1 ? size - i : i);
          array.push_back(order < 2             ? at * 0.125f
                          : order == 2          ? 1.0f
                          : i % (size / 50) < 5 ? std::numeric_limits<float>::quiet_NaN()
                                                : -2.0f);
        }
        lists.Add(array, k);
      }
    }
  }
  lists.Specify(false);
  OnEveryCpu([&](device::Stream& stream, const std::string& how) {
    lists.ClearResults();
    ASSERT_OK(TopK(lists.segments, {precision::kDType<TypeParam>, false}, stream));
    ASSERT_OK(stream.Synchronize());
    lists.ExpectMatch(how);
  });
}

// Send the greatest, keep the rest: [3, -4, 1], then [1, 1, 1] on top.
TEST_F(TopKTest, WithClearingTheRestIsTheErrorOfTheNextStep) {
  float array[] = {3, -4, 1};
  float value = 0;
  int32_t index = -1;
  std::vector<uint32_t> workspace(static_cast<size_t>(TopKWorkspaceSize(3)));
  const TopKSegment segment = {array, &value, &index, workspace.data(), 3, 1};
  const auto step = [&] {
    EXPECT_OK(TopK({&segment, 1}, {.clear = true}, *cpu_.stream));
    EXPECT_OK(cpu_.stream->Synchronize());
  };
  step();
  EXPECT_EQ(value, -4.0f);
  EXPECT_EQ(index, 1);
  EXPECT_THAT(array, ElementsAre(3.0f, 0.0f, 1.0f));
  for (float& x : array) x += 1;
  step();
  EXPECT_EQ(value, 4.0f);
  EXPECT_EQ(index, 0);
  EXPECT_THAT(array, ElementsAre(0.0f, 1.0f, 2.0f));
}

TEST_F(TopKTest, RefusesEveryBadArray) {
  BadArrays arrays("top_k");
  std::vector<TopKSegment> segments(1);
  TopKSegment& s = segments[0];
  s.size = 9;
  s.k = 4;
  // Too large for the others' test.
  std::vector<uint32_t> workspace(static_cast<size_t>(TopKWorkspaceSize(9)));
  s.workspace = workspace.data();
  arrays.Add("array of segment 0", s.array, 9, 4, 4, BadArrays::kWritten);
  arrays.Add("values of segment 0", s.values, 4, 4, 4, BadArrays::kWritten);
  arrays.Add("indices of segment 0", s.indices, 4, BadArrays::kWritten);
  arrays.ExpectRefused(*cpu_.stream, [&] { return TopK(segments, {.clear = true}, *cpu_.stream); });
}

TEST_F(TopKTest, RefusesBadSizesAndTypes) {
  float array[4] = {}, values[4];
  int32_t indices[4];
  std::vector<uint32_t> workspace(static_cast<size_t>(TopKWorkspaceSize(4)));
  TopKSegment s = {array, values, indices, workspace.data(), 4, 5};
  const auto expect = [&](const char* text) {
    EXPECT_THAT(TopK({&s, 1}, {}, *cpu_.stream),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  expect("top_k: k of segment 0 is 5, must be 0 to its size, 4");
  s.k = -1;
  expect("top_k: k of segment 0 is -1");
  s.k = 1;
  s.size = int64_t{1} << 31;
  expect("top_k: size of segment 0 is 2147483648, must be at most 2147483647");
  s.size = -1;
  expect("size");
  s.size = 4;
  s.workspace = nullptr;
  expect("workspace of segment 0 is null with 2180 elements");
  s.workspace = workspace.data();
  EXPECT_THAT(TopK({&s, 1}, {DType::kFloat64}, *cpu_.stream),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("dtype of array is fp64")));
}

TEST_F(TopKTest, WithoutAKNothingElseIsLookedAt) {
  float array[4] = {1, 2, 3, 4};
  const TopKSegment segments[] = {{array, nullptr, nullptr, nullptr, 4, 0},
                                  {nullptr, nullptr, nullptr, nullptr, 0, 0}};
  EXPECT_OK(TopK(segments, {.clear = true}, *cpu_.stream));
  EXPECT_OK(cpu_.stream->Synchronize());
  EXPECT_THAT(array, ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace brigade::kernels
