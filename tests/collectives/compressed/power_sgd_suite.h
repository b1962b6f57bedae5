#ifndef BRIGADE_TESTS_COLLECTIVES_COMPRESSED_POWER_SGD_SUITE_H_
#define BRIGADE_TESTS_COLLECTIVES_COMPRESSED_POWER_SGD_SUITE_H_

// What means by low-rank factors must do over every engine and on every device: the bits of the
// specification, the identity of error feedback, known answers, and the bytes of the formulas. For
// one test file of a program, which says for which groups.

#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/tests/collectives/compressed/exchanges.h"
#include "brigade/tests/spec/power_sgd.h"
#include "brigade/tests/testing/emulated.h"

namespace brigade::collectives {

inline constexpr double kEpsilon = 1e-8;

// A bucket of matrices with factors, of one and of several tiles of rows, and tensors without; with
// gaps. Emulated instructions are slow.
inline std::vector<PowerSgdTensor> Bucket() {
  if (brigade::testing::IsEmulated()) return {{0, 1, 7}, {8, 24, 20}, {500, 6, 5}};
  return {{0, 1, 7}, {8, 40, 30}, {1213, 6, 5}, {1243, 300, 33}, {11200, 1, 3}};
}

inline std::vector<spec::TensorPlace> PlacesOf(const std::vector<PowerSgdTensor>& tensors) {
  std::vector<spec::TensorPlace> places;
  for (const PowerSgdTensor& t : tensors) {
    places.push_back({static_cast<size_t>(t.offset), static_cast<size_t>(t.rows),
                      static_cast<size_t>(t.columns)});
  }
  return places;
}

// The elements of tensors, without those between them.
inline Values Tensors(const Values& bucket, const std::vector<PowerSgdTensor>& tensors) {
  Values values;
  for (const PowerSgdTensor& t : tensors) {
    const auto begin = bucket.begin() + t.offset;
    values.insert(values.end(), begin, begin + t.rows * t.columns);
  }
  return values;
}

// A rank's PowerSGD, with its state.
class LowRankMean {
 public:
  LowRankMean(Rank& self, std::vector<PowerSgdTensor> tensors, const PowerSgdOptions& options)
      : self_(self),
        tensors_(std::move(tensors)),
        options_(options),
        mean_(PowerSgdAllReduce::Create(*self.communicator, *self.context, tensors_, options)
                  .value()),
        error_(self, mean_->sizes().matrices, kFloat32),
        q_(self, mean_->sizes().q, kFloat32),
        wanted_(spec::InitialPowerSgdState(PlacesOf(tensors_), static_cast<size_t>(options.rank),
                                           static_cast<size_t>(self.size))) {
    error_.Put(Values(static_cast<size_t>(mean_->sizes().matrices)));
    q_.Put(Values(static_cast<size_t>(mean_->sizes().q)));
  }

  PowerSgdAllReduce& mean() { return *mean_; }
  PowerSgdState state() const {
    return {static_cast<float*>(error_.data()), static_cast<float*>(q_.data())};
  }
  Values error() { return error_.Get(); }
  Values q() { return q_.Get(); }
  // Sets Q here and in the specification.
  void PutQ(const Values& q) {
    q_.Put(q);
    size_t next = 0;
    for (spec::Columns& columns : wanted_.q) {
      for (auto& column : columns) {
        for (float& x : column) x = q[next++];
      }
    }
  }
  const spec::PowerSgdState& wanted() const { return wanted_; }

  // This rank's call, whose results are those of the specification.
  Values Call(const ValuesOfRanks& inputs, std::optional<bool> skip, bool in_place) {
    const Values& mine = inputs[static_cast<size_t>(self_.rank)];
    const auto count = static_cast<int64_t>(mine.size());
    TypedArray input(self_, count, options_.dtype, 1), output(self_, count, options_.dtype, 3);
    input.Put(mine);
    output.Put(Values(mine.size(), 5.0f));
    const device::Buffer step = StepOf(self_, skip);
    EXPECT_OK(mean_->AllReduce(
        input.data(), in_place ? input.data() : output.data(), state(),
        skip.has_value() ? static_cast<const kernels::StepState*>(step.data()) : nullptr,
        *self_.stream));
    const Values result = in_place ? input.Get() : output.Get();
    const Values wanted = spec::PowerSgdMean(
        inputs, PlacesOf(tensors_), static_cast<size_t>(options_.rank), options_.epsilon,
        skip.value_or(false), FormatOf(options_.dtype), wanted_, options_.iterations);
    if (!skip.value_or(false)) {
      EXPECT_TRUE(AreSame(Tensors(result, tensors_), Tensors(wanted, tensors_)));
    }
    ExpectGapsKept(result, in_place ? mine : Values(mine.size(), 5.0f));
    Values left, q;
    for (const spec::Matrix& m : wanted_.left_out[static_cast<size_t>(self_.rank)]) {
      left.insert(left.end(), m.values.begin(), m.values.end());
    }
    for (const spec::Columns& columns : wanted_.q) {
      for (const auto& column : columns) q.insert(q.end(), column.begin(), column.end());
    }
    EXPECT_TRUE(AreSame(error(), left));
    EXPECT_TRUE(AreSame(this->q(), q));
    return result;
  }

 private:
  void ExpectGapsKept(const Values& result, const Values& before) {
    int64_t end = 0;
    for (const PowerSgdTensor& t : tensors_) {
      for (int64_t i = end; i < t.offset; ++i) {
        EXPECT_EQ(result[static_cast<size_t>(i)], before[static_cast<size_t>(i)]) << i;
      }
      end = t.offset + t.rows * t.columns;
    }
  }

  Rank& self_;
  const std::vector<PowerSgdTensor> tensors_;
  const PowerSgdOptions options_;
  const std::unique_ptr<PowerSgdAllReduce> mean_;
  TypedArray error_, q_;
  spec::PowerSgdState wanted_;
};

class PowerSgdTest : public ::testing::TestWithParam<Group> {};

TEST_P(PowerSgdTest, HasTheSpecificationsBitsAndLosesNothing) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    const std::vector<PowerSgdTensor> tensors = Bucket();
    const int64_t count = PowerSgdSizesOf(tensors, 1).count;
    const auto ranks = static_cast<size_t>(self.size);
    bool in_place = false;
    for (const int32_t rank : {1, 3}) {
      for (const DType dtype : kTypes) {
        const int32_t iterations = rank == 1 ? 1 : 2;
        LowRankMean mean(self, tensors, {rank, dtype, kEpsilon, iterations});
        std::vector<double> given(static_cast<size_t>(count)), wanted(given.size());
        for (uint32_t step = 0; step < 3; ++step) {
          const ValuesOfRanks inputs = MakeValues(self.size, count, dtype, step);
          in_place = !in_place;
          const auto skip = step == 0 ? std::nullopt : std::optional<bool>(false);
          const Values output = mean.Call(inputs, skip, in_place);
          if (dtype != DType::kFloat32) continue;
          const std::vector<spec::TensorPlace> places = PlacesOf(tensors);
          for (size_t t = 0; t < places.size(); ++t) {
            const size_t size = places[t].rows * places[t].columns;
            for (size_t i = 0; i < size; ++i) {
              const size_t at = places[t].offset + i;
              double left = 0;
              for (size_t r = 0; r < ranks; ++r) {
                const auto& values = mean.wanted().left_out[r][t].values;
                if (!values.empty()) left += static_cast<double>(values[i]);
                wanted[at] += static_cast<double>(inputs[r][at]) / static_cast<double>(ranks);
              }
              given[at] += static_cast<double>(output[at]);
              ASSERT_NEAR(given[at] + left / static_cast<double>(ranks), wanted[at], 1e-4)
                  << "step " << step << ", element " << at;
            }
          }
        }
      }
    }
  });
}

// Of the facts: diag(3, 1) with Q = (1, 1) / sqrt 2, in a matrix that is large enough for factors.
TEST_P(PowerSgdTest, GivesTheKnownAnswer) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    LowRankMean mean(self, {{0, 10, 10}}, {.rank = 1});
    Values q(10), m(100);
    q[0] = q[1] = std::sqrt(0.5f);
    m[0] = 3;
    m[11] = 1;
    mean.PutQ(q);
    const Values output = mean.Call(ValuesOfRanks(static_cast<size_t>(self.size), m), false, false);
    const Values error = mean.error();
    for (size_t i = 0; i < 100; ++i) {
      const bool is_inside = i / 10 < 2 && i % 10 < 2;
      const float wanted[2][2] = {{2.7f, 0.3f}, {0.9f, 0.1f}};
      const float left[2][2] = {{0.3f, -0.3f}, {-0.9f, 0.9f}};
      EXPECT_NEAR(output[i], is_inside ? wanted[i / 10][i % 10] : 0.0f, 1e-6f) << i;
      EXPECT_NEAR(error[i], is_inside ? left[i / 10][i % 10] : 0.0f, 1e-6f) << i;
    }
  });
}

// M, 3 M, 5 M, ... of rank 1: the mean is the number of ranks times M. Before that zeros, which
// leave no direction for Q: the next call starts from one of its own.
TEST_P(PowerSgdTest, MatricesOfTheFactorsRankComeBackWholeAlsoAfterZeros) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    constexpr int64_t kRows = 12, kColumns = 16;
    for (const int32_t rank : {1, 2}) {
      LowRankMean mean(self, {{0, kRows, kColumns}}, {.rank = rank});
      const auto size = static_cast<size_t>(kRows * kColumns);
      const ValuesOfRanks zeros(static_cast<size_t>(self.size), Values(size));
      EXPECT_EQ(mean.Call(zeros, false, false), zeros[0]);
      EXPECT_EQ(mean.q(), Values(static_cast<size_t>(rank * kColumns)));
      ValuesOfRanks inputs = zeros;
      Values m(size);
      for (size_t i = 0; i < size; ++i) {
        m[i] = static_cast<float>(1 + i / kColumns) * (static_cast<float>(i % kColumns) - 4);
        for (size_t r = 0; r < inputs.size(); ++r) {
          inputs[r][i] = static_cast<float>(1 + 2 * r) * m[i];
        }
      }
      const Values output = mean.Call(inputs, false, false);
      const Values error = mean.error();
      for (size_t i = 0; i < size; ++i) {
        const float wanted = static_cast<float>(self.size) * m[i];
        EXPECT_NEAR(output[i], wanted, 1e-4f * static_cast<float>(self.size)) << i;
        EXPECT_NEAR(error[i], inputs[static_cast<size_t>(self.rank)][i] - wanted,
                    1e-4f * static_cast<float>(self.size))
            << i;
      }
    }
  });
}

TEST_P(PowerSgdTest, AStepThatIsSkippedOrNotFiniteKeepsEveryBitOfErrorsAndFactors) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    const std::vector<PowerSgdTensor> tensors = {{0, 20, 16}, {320, 1, 5}, {325, 16, 20}};
    constexpr size_t kInFirst = 37, kInVector = 322;
    LowRankMean mean(self, tensors, {.rank = 2});
    const ValuesOfRanks good = MakeValues(self.size, 645, kFloat32);
    mean.Call(good, false, false);
    const Values error = mean.error(), q = mean.q();
    const auto expect_kept = [&](const char* what) {
      EXPECT_TRUE(AreSame(mean.error(), error)) << what;
      EXPECT_TRUE(AreSame(mean.q(), q)) << what;
    };
    mean.Call(good, true, false);
    expect_kept("skipped");
    for (const float bad : {INFINITY, std::nanf(""), std::numeric_limits<float>::max()}) {
      for (const size_t at : {kInFirst, kInVector}) {
        ValuesOfRanks inputs = good;
        // Of one rank alone; and the largest number with others, so that the sum overflows.
        inputs.back()[at] = bad;
        if (std::isfinite(bad)) {
          if (self.size == 1 || at == kInFirst) continue;
          for (Values& values : inputs) values[at] = bad;
        }
        const Values output = mean.Call(inputs, false, false);
        for (size_t i = 0; i < output.size(); ++i) {
          EXPECT_EQ(std::isfinite(output[i]), at == kInFirst ? i >= 320 : i != at) << i;
        }
        expect_kept("not finite");
      }
    }
    mean.Call(good, false, true);
    EXPECT_FALSE(AreSame(mean.error(), error));
    EXPECT_FALSE(AreSame(mean.q(), q));
  });
}

// Of a matrix with singular values 4, 2, 1 and a start beside all of their directions: by the
// analysis of the power method, the part of the second direction beside the first falls by 4 with
// each iteration, that of the third by 16.
TEST_P(PowerSgdTest, IterationsComeNearerToTheLargestDirection) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    constexpr size_t kSide = 10;
    Values m(kSide * kSide), q(kSide);
    for (const auto& [at, value] : {std::pair<size_t, float>{0, 4}, {1, 2}, {2, 1}}) {
      m[at * kSide + at] = value;
      q[at] = std::sqrt(1.0f / 3);
    }
    for (int32_t iterations = 1; iterations <= 4; ++iterations) {
      LowRankMean mean(self, {{0, kSide, kSide}}, {.rank = 1, .iterations = iterations});
      mean.PutQ(q);
      mean.Call(ValuesOfRanks(static_cast<size_t>(self.size), m), false, false);
      const Values kept = mean.q();
      EXPECT_NEAR(kept[1] / kept[0], std::pow(4.0, -iterations), 1e-6) << iterations;
      EXPECT_NEAR(kept[2] / kept[0], std::pow(16.0, -iterations), 1e-6) << iterations;
    }
  });
}

TEST_P(PowerSgdTest, SendsTheBytesOfTheFormulas) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    const std::vector<PowerSgdTensor> tensors = {{0, 30, 24}, {720, 12, 1}, {732, 24, 36}};
    LowRankMean mean(self, tensors, {.rank = 4});
    LowRankMean three(self, tensors, {.rank = 4, .iterations = 3});
    const PowerSgdCalls calls = PowerSgdCallsOf(mean.mean().sizes());
    EXPECT_EQ(calls.first.count, 4 * (30 + 24) + 12);
    EXPECT_EQ(calls.second.count, 4 * (24 + 36));
    EXPECT_EQ(calls.again.count, 4 * (30 + 24));
    const auto sent_by_sums = [&](int64_t count) {
      TypedArray array(self, count, kFloat32);
      array.Put(Values(static_cast<size_t>(count)));
      return SentBy(self, *self.communicator, [&] {
        EXPECT_OK(self.communicator->AllReduce(array.data(), array.data(), count, kFloat32, {},
                                               *self.stream));
        EXPECT_OK(self.stream->Synchronize());
      });
    };
    const std::vector<int64_t> first = sent_by_sums(calls.first.count);
    const std::vector<int64_t> second = sent_by_sums(calls.second.count);
    const std::vector<int64_t> again = sent_by_sums(calls.again.count);
    const ValuesOfRanks inputs = MakeValues(self.size, mean.mean().sizes().count, kFloat32);
    const std::vector<int64_t> sent =
        SentBy(self, *self.communicator, [&] { mean.Call(inputs, std::nullopt, true); });
    const std::vector<int64_t> sent_thrice =
        SentBy(self, *self.communicator, [&] { three.Call(inputs, std::nullopt, true); });
    for (size_t to = 0; to < sent.size(); ++to) {
      EXPECT_EQ(sent[to], first[to] + second[to]) << "to " << to;
      EXPECT_EQ(sent_thrice[to], first[to] + second[to] + 2 * (again[to] + second[to]))
          << "to " << to;
    }
  });
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_COMPRESSED_POWER_SGD_SUITE_H_
