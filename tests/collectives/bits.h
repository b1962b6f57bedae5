#ifndef BRIGADE_TESTS_COLLECTIVES_BITS_H_
#define BRIGADE_TESTS_COLLECTIVES_BITS_H_

// Which bits sums over ranks have, by the specification. For inputs that tell one way of adding
// from another.

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

// All-reduces of `count` elements of T have the bits that the algorithms promise. Fails the test
// that calls it.
template <typename T>
void ExpectDirectRoundsOnceAndRingPerHop(const RanksOptions& options,
                                         const CreateEngineFn& create_engine, int64_t count) {
  const int size = options.size;
  struct Level {
    ReduceOptions options;
    std::vector<float> wanted;
  };
  Level levels[] = {{By(Algorithm::kDirect), {}},
                    {By(Algorithm::kRing), {}},
                    {{{}, Reduction::kFp32Partials, Algorithm::kRing}, {}}};
  int64_t differ = 0, ordered = 0;
  for (int64_t i = 0; i < count; ++i) {
    levels[0].wanted.push_back(RoundedOnce<T>(size, i));
    levels[1].wanted.push_back(RoundedPerHop<T>(size, count, i));
    levels[2].wanted.push_back(RoundedAtTheEnd<T>(size, count, i));
    differ += levels[0].wanted.back() != levels[1].wanted.back();
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
            << Name(level.reduction) << ", rank " << self.rank << " of " << size << ", element "
            << i;
      }
    }
    ASSERT_OK(self.communicator->Barrier(*self.stream));
    ASSERT_OK(self.stream->Synchronize());
  });
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_BITS_H_
