#ifndef BRIGADE_TESTS_COLLECTIVES_COMPRESSED_EXCHANGE_SUITE_H_
#define BRIGADE_TESTS_COLLECTIVES_COMPRESSED_EXCHANGE_SUITE_H_

// What collectives of codes must do over every engine and on every device: the bits of the
// specification, the identity of error feedback, and the bytes of the formulas. For one test file
// of a program, which says for which groups.

#include <algorithm>
#include <limits>

#include "brigade/tests/collectives/compressed/exchanges.h"
#include "brigade/tests/testing/emulated.h"

namespace brigade::collectives {

class ExchangesTest : public ::testing::TestWithParam<Group> {
 protected:
  static int size() { return GetParam().size; }

  // Of a part: none, odd ones, around a block, several blocks. Emulated instructions are slow.
  static std::vector<int64_t> Counts() {
    if (brigade::testing::IsEmulated()) return {0, 33, 257};
    return {0, 1, 31, 255, 256, 257, 1000, 4099};
  }
  // Of an array that is cut into parts: with parts of no elements, and the last one shorter.
  static std::vector<int64_t> WholeCounts() {
    if (brigade::testing::IsEmulated()) return {1, 520};
    return {0, 1, 2, size() - 1, size(), size() + 1, 33, 1000, 4099, 8192 * 3 + 5};
  }
};

TEST_P(ExchangesTest, AGatherGivesAllRanksWhatCodesKeepOfEachPart) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    bool in_place = false;
    for (const QuantFormat format : kQuantFormats) {
      auto gather = QuantizedAllGather::Create(*self.communicator, *self.context, 4099, format);
      ASSERT_OK(gather);
      for (const int64_t count : Counts()) {
        for (const DType dtype : kTypes) {
          const ValuesOfRanks parts = MakeValues(self.size, count, dtype);
          in_place = !in_place;
          EXPECT_TRUE(AreSame(Gather(self, **gather, parts, dtype, in_place),
                              spec::QuantizedGather(parts, BitsOf(format), FormatOf(dtype))))
              << count << " of " << precision::Name(dtype) << ", " << BitsOf(format) << " bits";
        }
      }
    }
  });
}

// What a gather has left is what codes keep of it: a second gather of the same changes nothing,
// also not of 16 bits whose blocks are tiny.
TEST_P(ExchangesTest, WhatAGatherHasLeftStays) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    constexpr int64_t kCount = 600;
    for (const QuantFormat format : kQuantFormats) {
      auto gather =
          QuantizedAllGather::Create(*self.communicator, *self.context, kCount, format).value();
      for (const DType dtype : kTypes) {
        for (const float magnitude : {1.0f, 3e-5f, 2e-6f, 4e-7f, 1e-7f}) {
          ValuesOfRanks parts = MakeValues(self.size, kCount, dtype);
          for (Values& values : parts) {
            for (float& x : values) x = spec::Round(FormatOf(dtype), x * magnitude);
          }
          const Values once = Gather(self, *gather, parts, dtype, true);
          TypedArray whole(self, self.size * kCount, dtype);
          Values all;
          for (const Values& values : parts) all.insert(all.end(), values.begin(), values.end());
          whole.Put(all);
          ASSERT_OK(gather->KeepCodes(whole.data(), kCount, dtype, *self.stream));
          EXPECT_TRUE(AreSame(whole.Get(), once));
          ASSERT_OK(gather->KeepCodes(whole.data(), kCount, dtype, *self.stream));
          EXPECT_TRUE(AreSame(whole.Get(), once)) << precision::Name(dtype) << ", " << magnitude;
          for (size_t r = 0; r < parts.size(); ++r) {
            const auto begin = once.begin() + static_cast<int64_t>(r) * kCount;
            parts[r] = {begin, begin + kCount};
          }
          EXPECT_TRUE(AreSame(Gather(self, *gather, parts, dtype, true), once));
        }
      }
    }
  });
}

TEST_P(ExchangesTest, AReduceScatterAddsWhatCodesKeepInTheOrderOfRanks) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto nodes = NodeGroups::Create(*self.communicator);
    ASSERT_OK(nodes);
    EXPECT_EQ(nodes->communicators().present(), GetParam().ranks_per_node() > 0);
    bool in_place = false;
    for (const QuantFormat format : kQuantFormats) {
      auto scatter = QuantizedReduceScatter::Create(*self.communicator, nodes->communicators(),
                                                    *self.context, 4099, format);
      ASSERT_OK(scatter);
      for (const int64_t count : Counts()) {
        for (const DType dtype : kTypes) {
          for (const float factor : {1.0f, 1.0f / static_cast<float>(self.size)}) {
            const ValuesOfRanks inputs = MakeValues(self.size, self.size * count, dtype);
            in_place = !in_place;
            EXPECT_TRUE(AreSame(
                Scatter(self, **scatter, inputs, dtype, factor, in_place),
                spec::QuantizedReduce(inputs, static_cast<size_t>(self.rank), BitsOf(format),
                                      factor, FormatOf(dtype), GetParam().ranks_per_node())))
                << count << " of " << precision::Name(dtype) << ", " << BitsOf(format) << " bits";
          }
        }
      }
    }
  });
}

TEST_P(ExchangesTest, AReduceScatterWithFeedbackHasTheSpecificationsBitsAndErrors) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto groups = NodeGroups::Create(*self.communicator).value();
    const size_t per_node = GetParam().ranks_per_node(), rank = static_cast<size_t>(self.rank);
    bool in_place = false;
    // In one hop also where there are nodes.
    for (const bool two_hops : {false, true}) {
      if (two_hops && per_node == 0) continue;
      const size_t of_node = two_hops ? per_node : 0;
      const int nodes = two_hops ? self.size / static_cast<int>(per_node) : 1;
      for (const QuantFormat format : kQuantFormats) {
        auto scatter = QuantizedReduceScatter::Create(
            *self.communicator, two_hops ? groups.communicators() : NodeCommunicators(),
            *self.context, 4099, format, /*has_feedback=*/true);
        ASSERT_OK(scatter);
        for (const int64_t count : Counts()) {
          if (count != 257 && count > 33) continue;
          for (const DType dtype : kTypes) {
            ScatterErrors errors(self, count, nodes);
            spec::LocoState state(static_cast<size_t>(self.size), static_cast<size_t>(count),
                                  of_node);
            for (uint32_t step = 0; step < 4; ++step) {
              const kernels::LocoParameters parameters = {.beta = step == 1 ? 0.25f : 0.8f,
                                                          .forget = step == 2};
              const ValuesOfRanks inputs = MakeValues(self.size, self.size * count, dtype, step);
              in_place = !in_place;
              const QuantizedFeedback feedback = errors.feedback(parameters);
              const Values output =
                  Scatter(self, **scatter, inputs, dtype, 0.3f, in_place, &feedback);
              const ValuesOfRanks wanted =
                  spec::LocoReduce(inputs, BitsOf(format), 0.3f, FormatOf(dtype), parameters.beta,
                                   parameters.forget, state, of_node);
              ASSERT_TRUE(AreSame(output, wanted[rank]))
                  << count << " of " << precision::Name(dtype) << ", step " << step;
              if (count == 0) continue;
              ASSERT_EQ(errors.local(), state.local[rank]) << "step " << step;
              if (!two_hops) continue;
              ASSERT_EQ(errors.sum(), state.sum[rank]) << "step " << step;
            }
          }
        }
      }
    }
  });
}

// Of the same input over and over: the mean over steps of what comes out comes nearer to the sum.
TEST_P(ExchangesTest, FeedbackBringsTheMeanOverStepsNearerToTheSum) {
  if (size() == 1) GTEST_SKIP() << "a rank alone is enough in the codec's test";
  OnGroup(GetParam(), {}, [](Rank& self) {
    constexpr int kSteps = 60;
    constexpr int64_t kCount = 256;
    auto groups = NodeGroups::Create(*self.communicator).value();
    const bool two_hops = groups.communicators().present();
    const int nodes = two_hops ? groups.communicators().between->size() : 1;
    auto scatter =
        QuantizedReduceScatter::Create(*self.communicator, groups.communicators(), *self.context,
                                       kCount, QuantFormat::kInt4, /*has_feedback=*/true)
            .value();
    const ValuesOfRanks inputs = MakeValues(self.size, self.size * kCount, kFloat32);
    ScatterErrors errors(self, kCount, nodes);
    const QuantizedFeedback feedback = errors.feedback({});
    const Values once = Scatter(self, *scatter, inputs, kFloat32, 1.0f, false);
    std::vector<double> sums(kCount);
    for (int step = 0; step < kSteps; ++step) {
      const Values output = Scatter(self, *scatter, inputs, kFloat32, 1.0f, false, &feedback);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += output[i];
    }
    double with = 0, without = 0;
    for (size_t i = 0; i < sums.size(); ++i) {
      double wanted = 0;
      for (const Values& each : inputs) wanted += each[static_cast<size_t>(self.rank) * kCount + i];
      with += std::pow(sums[i] / kSteps - wanted, 2);
      without += std::pow(once[i] - wanted, 2);
    }
    EXPECT_LT(std::sqrt(with), std::sqrt(without) / 4);
  });
}

TEST_P(ExchangesTest, ABlockThatIsNotFiniteOnOneRankIsNaNOnAll) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    constexpr int64_t kCount = 700, kBad = 300;  // in the second block
    auto nodes = NodeGroups::Create(*self.communicator).value();
    for (const QuantFormat format : kQuantFormats) {
      auto gather =
          QuantizedAllGather::Create(*self.communicator, *self.context, kCount, format).value();
      auto scatter = QuantizedReduceScatter::Create(*self.communicator, nodes.communicators(),
                                                    *self.context, kCount, format)
                         .value();
      for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
        ValuesOfRanks parts = MakeValues(self.size, kCount, kFloat32);
        parts.back()[kBad] = bad;
        const Values all = Gather(self, *gather, parts, kFloat32, false);
        for (int64_t i = 0; i < self.size * kCount; ++i) {
          const bool is_bad = i / kCount == self.size - 1 && i % kCount / 256 == 1;
          ASSERT_EQ(std::isnan(all[static_cast<size_t>(i)]), is_bad) << i;
        }
        ValuesOfRanks inputs = MakeValues(self.size, self.size * kCount, kFloat32);
        inputs.back()[kBad] = bad;  // in the part of rank 0
        const Values sum = Scatter(self, *scatter, inputs, kFloat32, 1.0f, false);
        for (int64_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(std::isnan(sum[static_cast<size_t>(i)]), self.rank == 0 && i / 256 == 1) << i;
        }
      }
    }
  });
}

TEST_P(ExchangesTest, AOneBitMeanHasTheSpecificationsBitsAndLosesNothing) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    const auto rank = static_cast<size_t>(self.rank);
    const auto ranks = static_cast<size_t>(self.size);
    auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, 8192 * 3 + 5);
    ASSERT_OK(mean);
    bool in_place = false;
    for (const int64_t count : WholeCounts()) {
      for (const DType dtype : kTypes) {
        const auto n = static_cast<size_t>(count);
        Errors errors(self, count);
        spec::OneBitState state(ranks, n);
        std::vector<double> given(n), wanted(n);
        double largest = 0;
        for (uint32_t step = 0; step < 3; ++step) {
          const ValuesOfRanks inputs = MakeValues(self.size, count, dtype, step);
          in_place = !in_place;
          const Values output =
              OneBit(self, **mean, inputs, dtype, errors,
                     step == 0 ? std::nullopt : std::optional<bool>(false), in_place);
          ASSERT_TRUE(AreSame(output, spec::OneBitMean(inputs, false, FormatOf(dtype), state)))
              << count << " of " << precision::Name(dtype) << ", step " << step;
          ASSERT_TRUE(AreSame(errors.local.Get(), state.local[rank]));
          ASSERT_TRUE(AreSame(errors.sum.Get(), state.sum[rank]));
          // What was given and what is left out is what came in. Outputs of 16 bits are rounded,
          // and what that loses is nowhere.
          if (dtype != DType::kFloat32) continue;
          const size_t part = (n + ranks - 1) / ranks;
          for (size_t i = 0; i < n; ++i) {
            double left = state.sum[i / part][i % part];
            for (size_t r = 0; r < ranks; ++r) {
              left += static_cast<double>(state.local[r][i]) / static_cast<double>(ranks);
              wanted[i] += static_cast<double>(inputs[r][i]) / static_cast<double>(ranks);
              largest = std::max(largest, std::fabs(static_cast<double>(state.local[r][i])));
            }
            given[i] += output[i];
            ASSERT_NEAR(given[i] + left, wanted[i], 1e-5 * (1 + largest)) << "step " << step;
          }
        }
      }
    }
  });
}

TEST_P(ExchangesTest, AOneBitMeanInTwoHopsHasTheSpecificationsBitsAndLosesNothing) {
  const size_t per_node = GetParam().ranks_per_node();
  if (per_node == 0) GTEST_SKIP() << "there are no two hops";
  OnGroup(GetParam(), {}, [per_node](Rank& self) {
    const auto ranks = static_cast<size_t>(self.size), rank = static_cast<size_t>(self.rank);
    const size_t node_count = ranks / per_node, node = rank / per_node, place = rank % per_node;
    auto nodes = NodeGroups::Create(*self.communicator).value();
    auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, 8192 * 3 + 5,
                                        nodes.communicators());
    ASSERT_OK(mean);
    bool in_place = false;
    for (const int64_t count : WholeCounts()) {
      for (const DType dtype : kTypes) {
        const auto n = static_cast<size_t>(count);
        Errors errors(self, count, static_cast<int>(node_count));
        auto places = spec::OneBitPlaces(ranks, n, per_node);
        std::vector<double> given(n), wanted(n);
        double largest = 0;
        for (uint32_t step = 0; step < 4; ++step) {
          const bool skip = step == 2;
          const ValuesOfRanks inputs = MakeValues(self.size, count, dtype, step);
          in_place = !in_place;
          const Values output = OneBit(self, **mean, inputs, dtype, errors, skip, in_place);
          const Values expected = spec::OneBitMeanOfNodes(inputs, skip, FormatOf(dtype), places);
          if (!skip) {
            ASSERT_TRUE(AreSame(output, expected))
                << count << " of " << precision::Name(dtype) << ", step " << step;
          }
          ASSERT_TRUE(AreSame(errors.local.Get(), places[place].local[node])) << "step " << step;
          ASSERT_TRUE(AreSame(errors.sum.Get(), places[place].sum[node])) << "step " << step;
          if (dtype != DType::kFloat32 || skip) continue;
          const size_t part = (n + per_node - 1) / per_node;
          for (size_t i = 0; i < n; ++i) {
            const spec::OneBitState& state = places[i / part];
            const size_t elements = std::min(n - i / part * part, part);
            const size_t of_node = (elements + node_count - 1) / node_count, at = i % part;
            double left = state.sum[at / of_node][at % of_node];
            for (size_t m = 0; m < node_count; ++m) {
              left += static_cast<double>(state.local[m][at]) / static_cast<double>(ranks);
              largest = std::max(largest, std::fabs(static_cast<double>(state.local[m][at])));
            }
            for (size_t r = 0; r < ranks; ++r) {
              wanted[i] += static_cast<double>(inputs[r][i]) / static_cast<double>(ranks);
            }
            given[i] += output[i];
            ASSERT_NEAR(given[i] + left, wanted[i], 1e-5 * (1 + largest)) << "step " << step;
          }
        }
      }
    }
  });
}

// Nodes whose sums are those of the facts' two ranks: scales of 20 and 15 in both places.
TEST_P(ExchangesTest, AOneBitMeanInTwoHopsGivesTheKnownAnswers) {
  if (size() != 4 || GetParam().ranks_per_node() != 2) GTEST_SKIP() << "they are of 2 x 2 ranks";
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto nodes = NodeGroups::Create(*self.communicator).value();
    auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, 4, nodes.communicators())
                    .value();
    Errors errors(self, 4, 2);
    const ValuesOfRanks inputs = {{1, 30, -4, 20}, {3, -2, 0, 8}, {3, -20, 1, 21}, {0, -1, 2, 0}};
    EXPECT_EQ(OneBit(self, *mean, inputs, kFloat32, errors, std::nullopt, false),
              (Values{8.75, 1.25, -1.25, 8.75}));
    const Values left[] = {{-16, 8}, {16, 8}, {-12, -6}, {-12, 6}};
    EXPECT_EQ(errors.local.Get(), left[self.rank]);
    EXPECT_EQ(errors.sum.Get(), Values{0});
  });
}

// Of the facts: two ranks with four elements, twice the same.
TEST_P(ExchangesTest, AOneBitMeanGivesTheKnownAnswers) {
  if (size() != 2) GTEST_SKIP() << "they are of two ranks";
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, 4).value();
    const ValuesOfRanks inputs = {{4, 28, -4, 28}, {3, -21, 3, 21}};
    Errors errors(self, 4);
    const auto call = [&] {
      return OneBit(self, *mean, inputs, kFloat32, errors, std::nullopt, false);
    };
    EXPECT_EQ(call(), (Values{12.5, 12.5, -12.5, 12.5}));
    EXPECT_EQ(errors.local.Get(),
              self.rank == 0 ? (Values{-16, 8, 16, 8}) : (Values{-12, -6, -12, 6}));
    EXPECT_EQ(errors.sum.Get(), self.rank == 0 ? (Values{5, -10}) : (Values{10, 5}));
    call();
    // c was [-12, 36, 12, 36] and [-9, -27, -9, 27]: scales of 12 and 9 times the root of 5.
    const float scale = self.rank == 0 ? 26.8328157f : 20.1246118f;
    const Values left = errors.local.Get();
    EXPECT_FLOAT_EQ(left[0], self.rank == 0 ? -12 + scale : -9 + scale);
    EXPECT_FLOAT_EQ(left[1], self.rank == 0 ? 36 - scale : -27 + scale);
  });
}

TEST_P(ExchangesTest, AStepThatIsSkippedOrNotFiniteKeepsEveryBitOfTheErrors) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    const int64_t count = brigade::testing::IsEmulated() ? 40 : 1003;
    const auto rank = static_cast<size_t>(self.rank);
    auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, count).value();
    Errors errors(self, count);
    spec::OneBitState state(static_cast<size_t>(self.size), static_cast<size_t>(count));
    const auto expect = [&](const ValuesOfRanks& inputs, bool skip, const char* what) {
      const Values output = OneBit(self, *mean, inputs, kFloat32, errors, skip, false);
      const Values wanted = spec::OneBitMean(inputs, skip, spec::Format::kFloat32, state);
      if (!skip) {
        EXPECT_TRUE(AreSame(output, wanted)) << what;
      }
      EXPECT_TRUE(AreSame(errors.local.Get(), state.local[rank])) << what;
      EXPECT_TRUE(AreSame(errors.sum.Get(), state.sum[rank])) << what;
      return output;
    };
    const ValuesOfRanks good = MakeValues(self.size, count, kFloat32);
    expect(good, false, "first");
    const Values local = errors.local.Get(), sum = errors.sum.Get();
    const auto expect_kept = [&](const char* what) {
      EXPECT_TRUE(AreSame(errors.local.Get(), local)) << what;
      EXPECT_TRUE(AreSame(errors.sum.Get(), sum)) << what;
    };
    expect(good, true, "skipped");
    expect_kept("skipped");
    for (const float bad : {INFINITY, std::nanf(""), 0x1p65f}) {
      ValuesOfRanks inputs = good;
      inputs.back()[3] = bad;  // of one rank alone
      for (const float x : expect(inputs, false, "not finite")) EXPECT_TRUE(std::isnan(x));
      expect_kept("not finite");
    }
    expect(good, false, "after these");
    EXPECT_FALSE(AreSame(errors.local.Get(), local));
  });
}

TEST_P(ExchangesTest, SendsTheBytesOfTheFormulas) {
  OnGroup(GetParam(), {}, [](Rank& self) {
    auto nodes = NodeGroups::Create(*self.communicator).value();
    const bool two_hops = nodes.communicators().present();
    const auto expect_to_others = [&](Communicator& over, int64_t each,
                                      const std::function<void()>& call) {
      const std::vector<int64_t> sent = SentBy(self, over, call);
      for (int to = 0; to < over.size(); ++to) {
        EXPECT_EQ(sent[static_cast<size_t>(to)], to == over.rank() ? 0 : each) << "to " << to;
      }
    };
    for (const int64_t count : {int64_t{1}, int64_t{257}, int64_t{1000}}) {
      const int64_t blocks = (count + 255) / 256, maxima = (blocks + 15) / 16 * 64;
      for (const QuantFormat format : kQuantFormats) {
        const int64_t message = maxima + blocks * (format == QuantFormat::kInt8 ? 256 : 128);
        auto gather =
            QuantizedAllGather::Create(*self.communicator, *self.context, count, format).value();
        // The one algorithm in which every rank sends its own message to all.
        const ValuesOfRanks parts = MakeValues(self.size, count, kFloat32);
        expect_to_others(*self.communicator, message, [&] {
          TypedArray array(self, self.size * count, kFloat32);
          array.Put(parts[static_cast<size_t>(self.rank)], self.rank * count);
          EXPECT_OK(gather->AllGather(array.at(self.rank * count), array.data(), count, kFloat32,
                                      {Algorithm::kDirect}, *self.stream));
          EXPECT_OK(self.stream->Synchronize());
        });
        auto scatter = QuantizedReduceScatter::Create(*self.communicator, nodes.communicators(),
                                                      *self.context, count, format)
                           .value();
        const ValuesOfRanks inputs = MakeValues(self.size, self.size * count, kFloat32);
        const auto call = [&] { Scatter(self, *scatter, inputs, kFloat32, 1.0f, true); };
        if (!two_hops) {
          expect_to_others(*self.communicator, message, call);
        } else {
          expect_to_others(*nodes.inside, nodes.between->size() * message, call);
          expect_to_others(*nodes.between, message, call);
          expect_to_others(*self.communicator, 0, call);
        }
      }
      auto mean = OneBitAllReduce::Create(*self.communicator, *self.context, count).value();
      Errors errors(self, count);
      const ValuesOfRanks inputs = MakeValues(self.size, count, kFloat32);
      const int64_t part = (count + self.size - 1) / self.size;
      expect_to_others(*self.communicator, 2 * (64 + (part + 511) / 512 * 64), [&] {
        TypedArray array(self, count, kFloat32);
        array.Put(inputs[static_cast<size_t>(self.rank)]);
        EXPECT_OK(mean->AllReduce(array.data(), array.data(), count, kFloat32, errors.pointers(),
                                  nullptr, {Algorithm::kDirect}, *self.stream));
        EXPECT_OK(self.stream->Synchronize());
      });
      if (!two_hops) continue;
      auto in_two =
          OneBitAllReduce::Create(*self.communicator, *self.context, count, nodes.communicators())
              .value();
      const int node_count = nodes.between->size();
      Errors of_node(self, count, node_count);
      const int64_t inner = (count + nodes.inside->size() - 1) / nodes.inside->size();
      const auto call = [&] { OneBit(self, *in_two, inputs, kFloat32, of_node, false, true); };
      expect_to_others(*nodes.inside, 2 * 4 * inner, call);
      // The part of the last place may be shorter.
      const int64_t held = std::clamp<int64_t>(count - nodes.inside->rank() * inner, 0, inner);
      const int64_t signs = (held + node_count - 1) / node_count;
      expect_to_others(*nodes.between, signs == 0 ? 0 : 2 * (64 + (signs + 511) / 512 * 64), call);
      expect_to_others(*self.communicator, 0, call);
    }
  });
}

}  // namespace brigade::collectives

#endif  // BRIGADE_TESTS_COLLECTIVES_COMPRESSED_EXCHANGE_SUITE_H_
