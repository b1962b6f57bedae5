#ifndef BRIGADE_TESTS_COLLECTIVES_COMPRESSED_TOP_K_SUITE_H_
#define BRIGADE_TESTS_COLLECTIVES_COMPRESSED_TOP_K_SUITE_H_

// What means by greatest elements must do over every engine and on every device: the bits of the
// specification, the identity of error feedback, known answers, and the bytes of the formulas. For
// one test file of a program, which says for which groups.

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "brigade/collectives/compressed/top_k_all_reduce.h"
#include "brigade/tests/collectives/compressed/exchanges.h"
#include "brigade/tests/spec/top_k_mean.h"
#include "brigade/tests/testing/emulated.h"

namespace brigade::collectives {

// A rank's call of a mean of its `k` greatest elements.
inline Values TopK(Rank& self, TopKAllReduce& mean, const ValuesOfRanks& inputs, int64_t k,
                   DType dtype, TypedArray& error, std::optional<bool> skip, bool in_place) {
  const Values& mine = inputs[static_cast<size_t>(self.rank)];
  const auto count = static_cast<int64_t>(mine.size());
  TypedArray input(self, count, dtype, 1), output(self, count, dtype, 3);
  input.Put(mine);
  const device::Buffer step = StepOf(self, skip);
  EXPECT_OK(mean.AllReduce(
      input.data(), in_place ? input.data() : output.data(), count, k, dtype,
      static_cast<float*>(error.data()),
      skip.has_value() ? static_cast<const kernels::StepState*>(step.data()) : nullptr, {},
      *self.stream));
  return in_place ? input.Get() : output.Get();
}

class TopKMeanTest : public ::testing::TestWithParam<Group> {
 protected:
  // Less than a tile of sums, and more.
  static std::vector<int64_t> Counts() {
    if (brigade::testing::IsEmulated()) return {1, 520};
    return {0, 1, 33, 4097};
  }
};

TEST_P(TopKMeanTest, HasTheSpecificationsBitsAndLosesNothing) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto mean = TopKAllReduce::Create(*self.communicator, *self.context, 4097, 4097);
    ASSERT_OK(mean);
    const auto rank = static_cast<size_t>(self.rank);
    const auto ranks = static_cast<size_t>(self.size);
    bool in_place = false;
    for (const int64_t count : Counts()) {
      for (const int64_t k : {int64_t{0}, std::min<int64_t>(count, 7), count / 10, count}) {
        for (const DType dtype : kTypes) {
          const auto n = static_cast<size_t>(count);
          TypedArray error(self, count, kFloat32);
          error.Put(Values(n));
          ValuesOfRanks left(ranks, Values(n));
          std::vector<double> given(n), wanted(n);
          for (uint32_t step = 0; step < 3; ++step) {
            const ValuesOfRanks inputs = MakeValues(self.size, count, dtype, step);
            in_place = !in_place;
            const Values output =
                TopK(self, **mean, inputs, k, dtype, error,
                     step == 0 ? std::nullopt : std::optional<bool>(false), in_place);
            ASSERT_TRUE(AreSame(output, spec::TopKMean(inputs, static_cast<size_t>(k), false,
                                                       FormatOf(dtype), left)))
                << k << " of " << count << " " << precision::Name(dtype) << ", step " << step;
            ASSERT_TRUE(AreSame(error.Get(), left[rank]));
            if (dtype != DType::kFloat32) continue;
            for (size_t i = 0; i < n; ++i) {
              double out = 0;
              for (size_t r = 0; r < ranks; ++r) {
                out += static_cast<double>(left[r][i]) / static_cast<double>(ranks);
                wanted[i] += static_cast<double>(inputs[r][i]) / static_cast<double>(ranks);
              }
              given[i] += static_cast<double>(output[i]);
              ASSERT_NEAR(given[i] + out, wanted[i], 1e-5) << "step " << step;
            }
          }
        }
      }
    }
  });
}

// Of the facts.
TEST_P(TopKMeanTest, GivesTheKnownAnswers) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto mean = TopKAllReduce::Create(*self.communicator, *self.context, 3, 1).value();
    TypedArray error(self, 3, kFloat32);
    error.Put(Values(3));
    const auto call = [&](const Values& input) {
      return TopK(self, *mean, ValuesOfRanks(static_cast<size_t>(self.size), input), 1, kFloat32,
                  error, std::nullopt, false);
    };
    const auto expect_near = [](const Values& actual, const Values& wanted) {
      for (size_t i = 0; i < 3; ++i) EXPECT_FLOAT_EQ(actual[i], wanted[i]);
    };
    expect_near(call({3, -4, 1}), {0, -4, 0});
    EXPECT_EQ(error.Get(), (Values{3, 0, 1}));
    expect_near(call({1, 1, 1}), {4, 0, 0});
    EXPECT_EQ(error.Get(), (Values{0, 1, 2}));
    // Each rank another element: each gets its share of the mean.
    if (self.size != 2) return;
    error.Put(Values(3));
    EXPECT_EQ(TopK(self, *mean, {{3, -4, 1}, {6, 0, 2}}, 1, kFloat32, error, std::nullopt, false),
              (Values{3, -2, 0}));
    EXPECT_EQ(error.Get(), self.rank == 0 ? (Values{3, 0, 1}) : (Values{0, 0, 2}));
  });
}

TEST_P(TopKMeanTest, AStepThatIsSkippedOrNotFiniteKeepsEveryBitOfTheErrors) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    constexpr int64_t kCount = 203, kMost = 9;
    auto mean = TopKAllReduce::Create(*self.communicator, *self.context, kCount, kMost).value();
    TypedArray error(self, kCount, kFloat32);
    error.Put(Values(kCount));
    const ValuesOfRanks good = MakeValues(self.size, kCount, kFloat32);
    const auto call = [&](const ValuesOfRanks& inputs, bool skip) {
      return TopK(self, *mean, inputs, kMost, kFloat32, error, skip, false);
    };
    call(good, false);
    const Values before = error.Get();
    call(good, true);
    EXPECT_TRUE(AreSame(error.Get(), before)) << "skipped";
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
      ValuesOfRanks inputs = good;
      inputs.back()[77] = bad;  // of one rank alone
      const Values output = call(inputs, false);
      for (size_t i = 0; i < output.size(); ++i) EXPECT_EQ(std::isfinite(output[i]), i != 77) << i;
      EXPECT_TRUE(AreSame(error.Get(), before)) << "not finite";
    }
    if (self.size > 1) {
      ValuesOfRanks inputs = good;
      for (Values& values : inputs) values[77] = std::numeric_limits<float>::max();
      EXPECT_TRUE(std::isinf(call(inputs, false)[77]));
      EXPECT_TRUE(AreSame(error.Get(), before)) << "a sum that overflows";
    }
    call(good, false);
    EXPECT_FALSE(AreSame(error.Get(), before));
  });
}

TEST_P(TopKMeanTest, SendsTheBytesOfTheFormulas) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    for (const int64_t k : {1, 13}) {
      auto mean = TopKAllReduce::Create(*self.communicator, *self.context, 100, k).value();
      EXPECT_EQ(TopKCallOf(k).count, 8 * k);
      TypedArray array(self, 100, kFloat32), error(self, 100, kFloat32);
      array.Put(MakeValues(1, 100, kFloat32)[0]);
      error.Put(Values(100));
      // The one algorithm in which every rank sends its own message to all.
      const std::vector<int64_t> sent = SentBy(self, *self.communicator, [&] {
        EXPECT_OK(mean->AllReduce(array.data(), array.data(), 100, k, kFloat32,
                                  static_cast<float*>(error.data()), nullptr, {Algorithm::kDirect},
                                  *self.stream));
        EXPECT_OK(self.stream->Synchronize());
      });
      for (int to = 0; to < self.size; ++to) {
        EXPECT_EQ(sent[static_cast<size_t>(to)], to == self.rank ? 0 : 8 * k) << "to " << to;
      }
    }
  });
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_COMPRESSED_TOP_K_SUITE_H_
