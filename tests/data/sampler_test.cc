#include "brigade/data/sampler.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::data {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

constexpr int64_t kNone = Sampler::kNone;

Sampler Make(const SamplerOptions& options) {
  const absl::StatusOr<Sampler> sampler = Sampler::Create(options);
  EXPECT_OK(sampler);
  return *sampler;
}

TEST(SamplerTest, AnyNumberOfRanksTakesTheSameSamples) {
  const Sampler sampler = Make({.samples = 103, .batch = 24, .seed = 5});
  DataPosition at;
  for (int step = 0; step < 12; ++step) {
    const std::vector<int64_t> all = sampler.Samples(at);
    for (const auto& [ranks, micro_batch] :
         std::vector<std::pair<int, int64_t>>{{1, 24}, {1, 1}, {2, 3}, {3, 8}, {4, 2}, {24, 1}}) {
      std::vector<int64_t> taken;
      for (int rank = 0; rank < ranks; ++rank) {
        const DataRank self = {rank, ranks, micro_batch};
        const std::vector<int64_t> mine = sampler.Samples(at, self);
        EXPECT_EQ(std::ssize(mine), sampler.MicroBatches(at, self) * micro_batch);
        std::copy_if(mine.begin(), mine.end(), std::back_inserter(taken),
                     [](int64_t sample) { return sample != kNone; });
      }
      EXPECT_THAT(taken, UnorderedElementsAreArray(all)) << ranks << " ranks, step " << step;
    }
    at = sampler.After(at);
  }
}

TEST(SamplerTest, EachEpochHasEachSampleOnceInAnotherOrder) {
  const Sampler sampler = Make({.samples = 100, .batch = 32, .seed = 1});
  EXPECT_EQ(sampler.StepsPerEpoch(), 4);
  std::vector<std::vector<int64_t>> epochs(3);
  for (int64_t step = 0; step < 12; ++step) {
    const DataPosition at = sampler.AtStep(step);
    EXPECT_EQ(at.epoch, step / 4);
    EXPECT_EQ(sampler.StepSize(at), step % 4 == 3 ? 4 : 32);
    for (const int64_t sample : sampler.Samples(at)) {
      epochs[static_cast<size_t>(at.epoch)].push_back(sample);
    }
  }
  for (const std::vector<int64_t>& epoch : epochs) {
    EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), 100u);
    EXPECT_EQ(epoch.size(), 100u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(SamplerTest, AShortStepHasFewerMicroBatches) {
  const Sampler sampler = Make({.samples = 21, .batch = 16, .shuffle = false});
  const DataPosition last = {0, 16};
  EXPECT_EQ(sampler.StepSize(last), 5);
  EXPECT_EQ(sampler.MicroBatches(last, {0, 2, 2}), 2);
  EXPECT_THAT(sampler.Samples(last, {0, 2, 2}), ElementsAre(16, 17, 20, kNone));
  EXPECT_THAT(sampler.Samples(last, {1, 2, 2}), ElementsAre(18, 19, kNone, kNone));
  EXPECT_EQ(sampler.MicroBatches({0, 0}, {0, 2, 2}), 4);
  EXPECT_EQ(sampler.After(last), (DataPosition{1, 0}));
  // The end of an epoch is the next one's begin.
  EXPECT_EQ(sampler.Begin({0, 21}), (DataPosition{1, 0}));
  EXPECT_THAT(sampler.Samples({0, 21}, {1, 2, 2}), ElementsAre(2, 3, 6, 7, 10, 11, 14, 15));
}

TEST(SamplerTest, DropsTheShortStep) {
  const Sampler sampler = Make({.samples = 21, .batch = 8, .shuffle = false, .drop_last = true});
  EXPECT_EQ(sampler.StepsPerEpoch(), 2);
  EXPECT_EQ(sampler.After({0, 8}), (DataPosition{1, 0}));
  EXPECT_EQ(sampler.AtStep(5), (DataPosition{2, 8}));
  // After a resume with another batch.
  EXPECT_EQ(sampler.Begin({0, 15}), (DataPosition{1, 0}));
  EXPECT_EQ(sampler.StepSize({0, 13}), 8);
}

TEST(SamplerTest, GoesOnInsideAnEpochWithAnotherBatch) {
  const SamplerOptions options = {.samples = 50, .batch = 8, .seed = 3};
  const Sampler before = Make(options);
  std::vector<int64_t> taken;
  DataPosition at;
  for (int step = 0; step < 3; ++step, at = before.After(at)) {
    for (const int64_t sample : before.Samples(at)) taken.push_back(sample);
  }
  SamplerOptions other = options;
  other.batch = 13;
  const Sampler after = Make(other);
  for (; at.epoch == 0; at = after.After(at)) {
    for (const int64_t sample : after.Samples(at)) taken.push_back(sample);
  }
  std::sort(taken.begin(), taken.end());
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(taken.at(static_cast<size_t>(i)), i);
  EXPECT_EQ(taken.size(), 50u);
}

TEST(SamplerTest, RefusesWhatCannotBe) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Sampler::Create({.samples = 0, .batch = 1}),
              StatusIs(kInvalid, HasSubstr("the data set has 0 samples")));
  EXPECT_THAT(Sampler::Create({.samples = 5, .batch = 0}),
              StatusIs(kInvalid, HasSubstr("a batch of 0 samples")));
  EXPECT_THAT(Sampler::Create({.samples = 5, .batch = 6, .drop_last = true}),
              StatusIs(kInvalid, HasSubstr("fewer than a batch of 6")));
  const Sampler sampler = Make({.samples = 5, .batch = 2});
  EXPECT_OK(sampler.Check({7, 5}));
  EXPECT_THAT(
      sampler.Check({0, 6}),
      StatusIs(kInvalid, HasSubstr("sample 6 of epoch 0 is no position in a data set of 5")));
  EXPECT_THAT(sampler.Check({-1, 0}), StatusIs(kInvalid, HasSubstr("epoch -1")));
}

}  // namespace
}  // namespace brigade::data
