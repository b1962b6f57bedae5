#ifndef BRIGADE_TESTS_COLLECTIVES_BITS_H_
#define BRIGADE_TESTS_COLLECTIVES_BITS_H_

// Which bits sums over ranks have, by the specification. For inputs that tell one way of adding
// from another.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include "brigade/collectives/algorithms/program.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/ranks.h"
#include "brigade/tests/spec/formats.h"
#include "gtest/gtest.h"

namespace brigade::collectives {

template <typename T>
constexpr spec::Format kFormat = std::is_same_v<T, float>             ? spec::Format::kFloat32
                                 : std::is_same_v<T, precision::Half> ? spec::Format::kFloat16
                                                                      : spec::Format::kBFloat16;

// Values whose sums depend on the order and on where they are rounded. Of every third element some
// ranks have the same large value, with either sign: once it has cancelled out, 16-bit sums too
// show what it had swallowed.
inline float UnevenValue(int rank, int64_t i) {
  std::mt19937 random(static_cast<uint32_t>(rank * 1000003 + i));
  const float x = std::uniform_real_distribution<float>(-1.0f, 1.0f)(random);
  if (i % 3 != 0) return std::ldexp(x, static_cast<int>(random() % 8));
  const auto large = static_cast<float>(4096 + i % 1000);
  const auto kind = random() % 3;
  return kind == 0 ? large : kind == 1 ? -large : std::ldexp(x, -9);
}

template <typename T>
float Rounded(float x) {
  return spec::Round(kFormat<T>, x);
}

// kRoundedOnce: in float, in ascending order, rounded once.
template <typename T>
float RoundedOnce(int size, int64_t i) {
  float sum = Rounded<T>(UnevenValue(0, i));
  for (int rank = 1; rank < size; ++rank) sum += Rounded<T>(UnevenValue(rank, i));
  return Rounded<T>(sum);
}

// What the other direction would give.
template <typename T>
float RoundedOnceDescending(int size, int64_t i) {
  float sum = Rounded<T>(UnevenValue(size - 1, i));
  for (int rank = size - 2; rank >= 0; --rank) sum += Rounded<T>(UnevenValue(rank, i));
  return Rounded<T>(sum);
}

// kRing, by what a ring is: block b starts at rank b and rounds at each of the next ranks.
template <typename T>
float RoundedPerHop(int size, int64_t count, int64_t i) {
  int block = 0;
  while (i >= BlockBegin(count, size, block + 1)) ++block;
  float sum = Rounded<T>(UnevenValue(block, i));
  for (int hop = 1; hop < size; ++hop) {
    sum = Rounded<T>(sum + Rounded<T>(UnevenValue((block + hop) % size, i)));
  }
  return sum;
}

// The same with fp32 sums on the way, rounded at the end.
template <typename T>
float RoundedAtTheEnd(int size, int64_t count, int64_t i) {
  int block = 0;
  while (i >= BlockBegin(count, size, block + 1)) ++block;
  float sum = Rounded<T>(UnevenValue(block, i));
  for (int hop = 1; hop < size; ++hop) sum += Rounded<T>(UnevenValue((block + hop) % size, i));
  return Rounded<T>(sum);
}

// The sum of `count` values over a binary tree in whose positions they stand from left to right:
// the root is at the largest power of two, and adds what is left of it, its own, and what is right
// of it.
template <typename Round>
float TreeSum(const float* values, size_t count, const Round& round) {
  if (count == 1) return values[0];
  const size_t left = std::bit_floor(count) - 1, right = count - left - 1;
  float sum = TreeSum(values, left, round) + values[left];
  if (right > 0) sum += TreeSum(values + left + 1, right, round);
  return round(sum);
}

// kDoubleTree: the first half over the ranks in their order; the second, with an even number of
// ranks, in the opposite order, else with the last rank before the first one.
template <typename T, typename Round>
float RoundedInTrees(int size, int64_t count, int64_t i, const Round& round) {
  std::vector<float> values;
  for (int rank = 0; rank < size; ++rank) values.push_back(Rounded<T>(UnevenValue(rank, i)));
  if (i >= BlockBegin(count, 2, 1)) {
    if (size % 2 == 0) {
      std::reverse(values.begin(), values.end());
    } else {
      std::rotate(values.begin(), values.end() - 1, values.end());
    }
  }
  return TreeSum(values.data(), values.size(), round);
}

// All-reduces of `count` elements of T, at most 256 KiB, have the bits that the algorithms promise.
// Fails the test that calls it.
template <typename T>
void ExpectBitsOfTheAlgorithms(const RanksOptions& options, const CreateEngineFn& create_engine,
                               int64_t count) {
  const int size = options.size;
  struct Level {
    ReduceOptions options;
    std::vector<float> wanted;
  };
  Level levels[] = {{By(Algorithm::kDirect), {}},
                    {By(Algorithm::kParameterServer), {}},
                    {By(Algorithm::kRing), {}},
                    {{{}, Reduction::kFp32Partials, Algorithm::kRing}, {}},
                    {{{}, Reduction::kRoundedPerHop, Algorithm::kDoubleTree}, {}},
                    {{{}, Reduction::kFp32Partials, Algorithm::kDoubleTree}, {}}};
  int64_t differ = 0, ordered = 0;
  for (int64_t i = 0; i < count; ++i) {
    levels[0].wanted.push_back(RoundedOnce<T>(size, i));
    levels[1].wanted.push_back(RoundedOnce<T>(size, i));
    levels[2].wanted.push_back(RoundedPerHop<T>(size, count, i));
    levels[3].wanted.push_back(RoundedAtTheEnd<T>(size, count, i));
    levels[4].wanted.push_back(RoundedInTrees<T>(size, count, i, Rounded<T>));
    levels[5].wanted.push_back(
        Rounded<T>(RoundedInTrees<T>(size, count, i, [](float sum) { return sum; })));
    differ += levels[0].wanted.back() != levels[2].wanted.back();
    ordered += levels[0].wanted.back() != RoundedOnceDescending<T>(size, i);
  }
  EXPECT_TRUE(size == 2 || differ > count / 20) << "the inputs tell nothing";
  EXPECT_TRUE(size == 2 || ordered > count / 50) << "the order tells nothing: " << ordered;
  OnRanks(options, create_engine, [&](Rank& self) {
    std::vector<T> input(count), output(count);
    for (int64_t i = 0; i < count; ++i) input[i] = T(UnevenValue(self.rank, i));
    for (const auto& [level, wanted] : levels) {
      ASSERT_OK(self.communicator->AllReduce(input.data(), output.data(), count,
                                             precision::kDType<T>, level, *self.stream));
      ASSERT_OK(self.stream->Synchronize());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(static_cast<float>(output[i]), wanted[static_cast<size_t>(i)])
            << Name(level.algorithm) << ", " << Name(level.reduction) << ", rank " << self.rank
            << " of " << size << ", element " << i;
      }
    }
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_BITS_H_
