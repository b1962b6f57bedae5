// How exact sums are that crossed the wire in 16 bits, and how many bytes that took, over every
// engine.

#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "brigade/kernels/cast/cast.h"
#include "brigade/tests/collectives/compressed/wire.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/collectives/engines/nccl/nccl_ranks.h"
#include "gtest/gtest.h"

namespace brigade::collectives {
namespace {

using Engines = CreateEngineFn (*)(const RanksOptions&);

struct Group {
  const char* name;
  Engines engines;
  int size;
};

void PrintTo(const Group& group, std::ostream* out) { *out << group.name << group.size; }

class WirePrecisionTest : public ::testing::TestWithParam<Group> {
 protected:
  static int size() { return GetParam().size; }

  // body(self, call(inputs, options) -> this rank's result); all ranks must get the same bits of
  // all calls.
  using Call = std::function<Result(const Inputs& inputs, const WireOptions& options)>;
  static void OnAll(const std::function<void(Rank& self, const Call& call)>& body) {
    const RanksOptions options = {.size = size()};
    std::vector<std::vector<Result>> results(static_cast<size_t>(size()));
    OnRanks(options, GetParam().engines(options), [&](Rank& self) {
      auto compressed = CompressedReduction::Create(*self.communicator, *self.context, 2 * 4099);
      ASSERT_OK(compressed);
      std::vector<Result>& mine = results[static_cast<size_t>(self.rank)];
      body(self, [&](const Inputs& inputs, const WireOptions& wire) {
        const std::vector<float>& input = inputs[static_cast<size_t>(self.rank)];
        mine.push_back(
            AllReduceOnWire(**compressed, input, wire, mine.size() % 2 == 0, *self.stream));
        return mine.back();
      });
      EXPECT_OK(self.communicator->Barrier(*self.stream));
      EXPECT_OK(self.stream->Synchronize());
    });
    for (const std::vector<Result>& of_rank : results) {
      ASSERT_EQ(of_rank.size(), results[0].size());
      for (size_t i = 0; i < of_rank.size(); ++i) {
        EXPECT_TRUE(SameBits(of_rank[i].output, results[0][i].output)) << "call " << i;
        EXPECT_EQ(of_rank[i].non_finite, results[0][i].non_finite) << "call " << i;
      }
    }
  }

  static void ExpectGood(const Result& result, const Inputs& inputs, const WireOptions& options) {
    const double scale = ScaleOf(options, inputs);
    EXPECT_EQ(result.non_finite, 0) << collectives::ToString(options);
    for (size_t i = 0; i < result.output.size(); ++i) {
      ASSERT_TRUE(IsWithinBound(result.output[i], options, inputs, scale, i));
      if (options.algorithm == Algorithm::kDirect) {
        ASSERT_EQ(result.output[i], DirectSum(options, inputs, scale, i))
            << "element " << i << ": " << collectives::ToString(options);
      }
    }
  }
};

TEST_P(WirePrecisionTest, KeepsToTheBoundWithEveryOption) {
  OnAll([](Rank& self, const Call& call) {
    for (const int64_t count : {0, 1, 1000, 4099}) {
      const Inputs inputs = MakeInputs(self.size, count, 1.0f);
      for (const DType wire : kWires) {
        for (const WireScaling scaling : kScalings) {
          for (const Algorithm algorithm : kAlgorithms) {
            const WireOptions options = {wire, scaling, 1000.3f, By(algorithm).reduction,
                                         algorithm};
            ExpectGood(call(inputs, options), inputs, options);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  });
}

// Each rank's part of a reduce-scatter has the bits of the all-reduce, and is on the wire as
// WireSum says. Of the algorithms this holds for that which adds in the order of ranks.
TEST_P(WirePrecisionTest, AReduceScatterGivesTheBitsOfTheAllReduce) {
  const int64_t part = 4099 / size();
  OnAll([part](Rank& self, const Call& call) {
    auto compressed =
        CompressedReduction::Create(*self.communicator, *self.context, 2 * self.size * part);
    ASSERT_OK(compressed);
    for (const float magnitude : {1e-9f, 1.0f, 1e5f}) {
      const Inputs inputs = MakeInputs(self.size, self.size * part, magnitude);
      for (const DType wire : kWires) {
        for (const WireScaling scaling : kScalings) {
          const WireOptions options = {.wire = wire, .scaling = scaling, .scale = 64.0f};
          const Result whole = call(inputs, options);
          const auto sum = (*compressed)
                               ->SumOnWire(CollectiveKind::kReduceScatter,
                                           inputs[static_cast<size_t>(self.rank)].data(), part,
                                           kFloat32, options, *self.stream);
          ASSERT_OK(sum);
          EXPECT_EQ(sum->dtype, wire);
          EXPECT_EQ(sum->data, static_cast<char*>(sum->whole) + 2 * self.rank * part);
          std::vector<float> mine(static_cast<size_t>(part));
          ASSERT_OK(kernels::Cast({{sum->data, mine.data(), part}},
                                  {wire, DType::kFloat32, sum->unscale}, *self.stream));
          ASSERT_OK(self.stream->Synchronize());
          const auto begin = whole.output.begin() + self.rank * part;
          EXPECT_TRUE(SameBits(mine, std::vector<float>(begin, begin + part)))
              << collectives::ToString(options) << ", magnitude " << magnitude;
        }
      }
    }
  });
}

// Not a value is lost, whatever the magnitude; without a scale float16 keeps none.
TEST_P(WirePrecisionTest, DynamicScalesSaveValuesOfAnyMagnitude) {
  OnAll([](Rank& self, const Call& call) {
    for (const float magnitude : {1e-30f, 1e30f}) {
      Inputs inputs = MakeInputs(self.size, 1000, magnitude);
      for (auto& input : inputs) {
        for (float& x : input) x = std::fabs(x);  // so that no sum cancels
      }
      const Result lost = call(inputs, {.scaling = WireScaling::kNone});
      EXPECT_EQ(lost.non_finite, magnitude > 1 ? 1 : 0);
      for (size_t i = 0; i < lost.output.size(); ++i) {
        const bool kept = std::isfinite(lost.output[i]) && lost.output[i] != 0;
        ASSERT_FALSE(kept) << "element " << i << " is " << lost.output[i];
      }
      for (const DType wire : kWires) {
        for (const Algorithm algorithm : kAlgorithms) {
          const WireOptions options = {
              .wire = wire, .reduction = By(algorithm).reduction, .algorithm = algorithm};
          const Result result = call(inputs, options);
          ExpectGood(result, inputs, options);
          for (size_t i = 0; i < result.output.size(); ++i) {
            ASSERT_EQ(result.output[i] == 0, i % 10 == 9) << result.output[i];
          }
        }
      }
    }
  });
}

// All ranks have the largest value: the tightest fit. Close to fp32's limit one rank has it, or the
// sum is beyond.
TEST_P(WirePrecisionTest, DynamicScalesLeaveRoomForTheSum) {
  OnAll([](Rank& self, const Call& call) {
    for (const float largest : {0x1p-149f, 0x1.fffffep-100f, 1.0f, 65504.0f, 0x1.fp125f}) {
      const Inputs inputs(static_cast<size_t>(self.size), std::vector<float>(5, largest));
      for (const DType wire : kWires) {
        for (const Algorithm algorithm : kAlgorithms) {
          const WireOptions options = {
              .wire = wire, .reduction = By(algorithm).reduction, .algorithm = algorithm};
          const Result result = call(inputs, options);
          EXPECT_EQ(result.non_finite, 0) << largest;
          for (const float sum : result.output) EXPECT_NEAR(sum / largest, self.size, 0.05);
        }
      }
    }
    Inputs one(static_cast<size_t>(self.size), std::vector<float>(5, 0.0f));
    one.back()[2] = 0x1.fep127f;
    EXPECT_EQ(call(one, {}).output[2], 0x1.fep127f);
    one.front()[2] = 0x1.fep127f;  // finite on the wire, and beyond fp32 after it
    EXPECT_EQ(call(one, {}).non_finite, self.size == 1 ? 0 : 1);
  });
}

TEST_P(WirePrecisionTest, ReportsWhatIsNotFiniteOnAllRanksAlike) {
  constexpr size_t kBad = 617;
  OnAll([](Rank& self, const Call& call) {
    const Inputs good = MakeInputs(self.size, 1000, 1.0f);
    for (const DType wire : kWires) {
      for (const WireScaling scaling : kScalings) {
        for (const Algorithm algorithm : kAlgorithms) {
          const WireOptions options = {wire, scaling, 64.0f, By(algorithm).reduction, algorithm};
          for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
            Inputs inputs = good;
            inputs.back()[kBad] = bad;  // of the last rank alone
            Result result = call(inputs, options);
            EXPECT_EQ(result.non_finite, 1) << collectives::ToString(options) << ", " << bad;
            EXPECT_FALSE(std::isfinite(result.output[kBad]));
            EXPECT_EQ(std::isnan(result.output[kBad]), std::isnan(bad));
            // The others are as if it were not there, with a scale of 1 where that depends on it.
            const double scale = scaling == WireScaling::kStatic ? 64.0 : 1.0;
            for (size_t i = 0; i < inputs[0].size(); ++i) {
              if (i == kBad) continue;
              ASSERT_TRUE(IsWithinBound(result.output[i], options, inputs, scale, i));
            }
          }
          EXPECT_EQ(call(good, options).non_finite, 0) << "after a bad one";
        }
      }
    }
  });
}

TEST_P(WirePrecisionTest, ReportsSumsThatOverflowTheWire) {
  if (size() == 1) GTEST_SKIP() << "one rank has no sums";
  OnAll([](Rank& self, const Call& call) {
    const Inputs inputs(static_cast<size_t>(self.size), std::vector<float>(100, 60000.0f));
    const Result result = call(inputs, {.scaling = WireScaling::kNone});
    EXPECT_EQ(result.non_finite, 1);
    EXPECT_EQ(result.output[99], INFINITY);
    EXPECT_EQ(call(inputs, {.scaling = WireScaling::kStatic, .scale = 0.125f}).non_finite, 0);
    EXPECT_EQ(call(inputs, {.wire = DType::kBFloat16, .scaling = WireScaling::kNone}).non_finite,
              0);
  });
}

TEST_P(WirePrecisionTest, SendsExactlyHalfTheBytes) {
  OnAll([](Rank& self, const Call& call) {
    const auto sent_by = [&](const std::function<void()>& run) {
      std::vector<int64_t> bytes;
      const auto add = [&](int64_t sign) {
        EXPECT_OK(self.communicator->Barrier(*self.stream));
        EXPECT_OK(self.stream->Synchronize());
        bytes.resize(static_cast<size_t>(self.size));
        for (int to = 0; to < self.size; ++to) {
          bytes[static_cast<size_t>(to)] += sign * self.communicator->sent_bytes(to);
        }
      };
      add(-1);
      run();
      add(1);
      return bytes;
    };
    const auto all_reduce = [&](std::vector<float> x, Algorithm algorithm) {
      EXPECT_OK(self.communicator->AllReduce(x.data(), x.data(), static_cast<int64_t>(x.size()),
                                             kFloat32, By(algorithm), *self.stream));
      EXPECT_OK(self.stream->Synchronize());
    };
    const std::vector<int64_t> one_float = sent_by([&] { all_reduce({1.0f}, Algorithm::kDirect); });
    for (const int64_t count : {1, 1000, 4099}) {
      const Inputs inputs = MakeInputs(self.size, count, 1.0f);
      for (const Algorithm algorithm : kAlgorithms) {
        const std::vector<int64_t> whole = sent_by([&] { all_reduce(inputs[0], algorithm); });
        for (const WireScaling scaling : kScalings) {
          const std::vector<int64_t> wire = sent_by([&] {
            call(
                inputs,
                {.scaling = scaling, .reduction = By(algorithm).reduction, .algorithm = algorithm});
          });
          for (size_t to = 0; to < wire.size(); ++to) {
            const int64_t agreement = scaling == WireScaling::kDynamic ? one_float[to] : 0;
            EXPECT_EQ(2 * (wire[to] - agreement), whole[to])
                << Name(algorithm) << ", " << count << " elements to rank " << to;
          }
        }
        const int64_t all = std::accumulate(whole.begin(), whole.end(), int64_t{0});
        EXPECT_TRUE(all > 0 || self.size == 1 || count == 1);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, WirePrecisionTest,
                         ::testing::Values(Group{"threads", ThreadEngines, 1},
                                           Group{"threads", ThreadEngines, 2},
                                           Group{"threads", ThreadEngines, 3},
                                           Group{"threads", ThreadEngines, 4}));
INSTANTIATE_TEST_SUITE_P(Gloo, WirePrecisionTest,
                         ::testing::Values(Group{"gloo", testing::GlooEngines, 2},
                                           Group{"gloo", testing::GlooEngines, 3}));

CreateEngineFn EnginesOfEmulatedNccl(const RanksOptions& options) {
  EmulatedNccl::Reset();
  return NcclEngines(options);
}
INSTANTIATE_TEST_SUITE_P(Nccl, WirePrecisionTest,
                         ::testing::Values(Group{"nccl", EnginesOfEmulatedNccl, 2},
                                           Group{"nccl", EnginesOfEmulatedNccl, 3}));

}  // namespace
}  // namespace brigade::collectives
