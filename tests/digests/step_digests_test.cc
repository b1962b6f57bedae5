// Digests of the toy's training: the same in every stage, on every engine; and bits that flip.

#include "brigade/digests/step_digests.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/digests/first_difference.h"
#include "brigade/precision/float16.h"
#include "brigade/tests/collectives/engines/gloo/gloo_ranks.h"
#include "brigade/tests/digests/toy_digests.h"
#include "brigade/tests/spec/digest.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/tests/zero/toy_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::digests {
namespace {

using ::brigade::testing::StatusIs;
using kernels::TensorDigest;
using ::testing::HasSubstr;
using zero::ZeroOptions;

TEST(StepDigestsTest, WeightsAreTheSpecificationsOfWhatIsExported) {
  const Seen seen = Train({.options = Options(2)});
  ExpectClean(seen);
  const StepRecord& last = seen.log.steps.back();
  ASSERT_EQ(seen.exported.size(), last.weights.size());
  for (size_t t = 0; t < seen.exported.size(); ++t) {
    std::vector<unsigned char> bytes(2 * seen.exported[t].size());
    for (size_t i = 0; i < seen.exported[t].size(); ++i) {
      const precision::BFloat16 rounded(seen.exported[t][i]);
      std::memcpy(bytes.data() + 2 * i, &rounded, 2);
    }
    EXPECT_EQ((spec::Digest{last.weights[t].words[0], last.weights[t].words[1]}),
              spec::DigestOf(bytes))
        << seen.log.header.tensors[t].name;
    const TensorDigest& before = seen.log.steps[0].weights[t];
    if (seen.log.header.tensors[t].name == "h.0.w") {
      EXPECT_NE(before.words[0], last.weights[t].words[0]);
    }
  }
}

TEST(StepDigestsTest, AreTheSameInEveryStageAndCutOfBuckets) {
  const Seen wanted = Train({.options = Options(0)});
  for (const zero::Home& home : zero::Homes()) {
    for (const int64_t bucket_elements : {1000, 100}) {
      if (bucket_elements == 100 && home.offload.enabled()) continue;
      SCOPED_TRACE(absl::StrCat(ToString(home), ", buckets of ", bucket_elements));
      ZeroOptions options = Options(home.stage);
      home.Set(options);
      options.bucket_elements = bucket_elements;
      const Seen seen = Train({.options = options});
      ExpectClean(seen);
      ExpectAlike(seen, wanted);
    }
  }
}

TEST(StepDigestsTest, AreTheSameOnEveryEngine) {
  for (const int stage : {1, 3}) {
    const Training run = {.options = Options(stage)};
    const Seen wanted = Train(run);
    ExpectAlike(TrainOverMessages(run), wanted);
    ExpectAlike(Train(run, collectives::testing::GlooEngines({.size = run.ranks})), wanted);
  }
}

// What all ranks make of the codes is the same.
TEST(StepDigestsTest, FindNothingWhereWeightsAreGatheredAsCodes) {
  for (int stage = 1; stage < 3; ++stage) {
    ZeroOptions options = Options(stage);
    options.quantized_weights = kernels::QuantFormat::kInt8;
    ExpectClean(Train({.options = options}));
  }
}

TEST(FlippedBitTest, OfAWeightNamesTheRank) {
  for (int stage = 0; stage < 3; ++stage) {
    SCOPED_TRACE(stage);
    const Seen seen = Train({.options = Options(stage), .flip = Flip{.step = 2, .rank = 1}});
    ExpectFoundIn(seen, 2, "rank 1 is alone");
  }
}

// Of slices that are kept on the host or in a file: groups have copies of them.
TEST(FlippedBitTest, OfAWeightThatIsElsewhereNamesTheGroup) {
  for (const device::Tier tier : {device::Tier::kHost, device::Tier::kFile}) {
    SCOPED_TRACE(device::ToString(tier));
    ZeroOptions options = Options(3);
    options.shard_ranks = 2;
    options.offload.optimizer_state = options.offload.parameters = tier;
    options.offload.file.directory = ::testing::TempDir();
    ExpectClean(Train({.options = options, .ranks = 6}));
    ExpectFoundIn(Train({.options = options, .ranks = 6, .flip = Flip{.step = 2, .rank = 3}}), 2,
                  "rank 3 is alone");
  }
}

TEST(FlippedBitTest, OfTwoCopiesNamesBoth) {
  const Seen seen = Train({.options = Options(1), .ranks = 2, .flip = Flip{.step = 1, .rank = 1}});
  ExpectFoundIn(seen, 1, "cannot be told");
}

// In stage 0 every rank updates with a gradient of its own.
TEST(FlippedBitTest, OfAGradientIsFoundByTheNextWeightsInStage0) {
  const Seen seen =
      Train({.options = Options(0), .flip = Flip{.step = 1, .rank = 2, .in_gradient = true}});
  ExpectFoundIn(seen, 2, "rank 2 is alone");
}

// Three groups have the same sums, and the same weights, of stage 3 too.
TEST(FlippedBitTest, OfGroupsWithAWholeStateNamesTheRank) {
  for (const bool in_gradient : {false, true}) {
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat("stage ", stage, in_gradient ? ", gradient" : ", weight"));
      ZeroOptions options = Options(stage);
      options.shard_ranks = 2;
      Training run = {.options = options, .ranks = 6};
      ExpectClean(Train(run));
      run.flip = Flip{.step = 1, .rank = 4, .in_gradient = in_gradient};
      ExpectFoundIn(Train(run), 1, "rank 4 is alone");
    }
  }
}

// All ranks go on with the same wrong sum: no copy differs, but another run's digests do.
TEST(FlippedBitTest, OfASumThatOneRankOwnsIsTheFirstDifferenceOfTwoRuns) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    const Seen wanted = Train({.options = Options(0)});
    const Seen seen =
        Train({.options = Options(stage), .flip = Flip{.step = 2, .rank = 1, .in_gradient = true}});
    ExpectClean(seen);
    const auto compared = FirstDifference(seen.log, wanted.log);
    ASSERT_OK(compared);
    ASSERT_TRUE(compared->difference.has_value());
    EXPECT_EQ(compared->difference->step, 3);
    EXPECT_EQ(compared->difference->alike, 2);
    EXPECT_EQ(compared->difference->kind, "gradients");
    EXPECT_EQ(compared->difference->tensors, std::vector<std::string>({"h.0.w"}));
  }
}

// Messages of h.0.w, which has a bucket of its own: slices of bfloat16 weights, of float32
// gradients. Those of smaller tensors go with what says whose call it is.
Training OverAWire(int stage) {
  Training run = {.options = Options(stage), .model = zero::ModelOfLargeTensors(), .wire_rank = 2};
  run.options.communication_dtype = precision::DType::kFloat32;
  return run;
}
int64_t SliceElements(const Training& run) {
  const auto plan = zero::Plan::Create(run.model, {.ranks = run.ranks,
                                                   .dtype = run.options.dtype,
                                                   .bucket_elements = run.options.bucket_elements})
                        .value();
  return plan.slice(plan.bucket(plan.parameter(kParameter).bucket));
}

// A gather whose message arrives with another bit at one rank.
TEST(FlippedBitTest, OfAWireThatCarriesWeightsNamesTheRank) {
  for (int stage = 1; stage < 3; ++stage) {
    Training run = OverAWire(stage);
    ExpectClean(TrainOverMessages(run));
    WireFault fault;
    fault.bytes = 2 * SliceElements(run);
    run.wire = &fault;
    run.wire_step = 1;
    const Seen seen = TrainOverMessages(run);
    EXPECT_EQ(fault.damaged, 1);
    ExpectFoundIn(seen, 2, "rank 2 is alone");
  }
}

// A sum whose message arrives with another bit is wrong for all.
TEST(FlippedBitTest, OfAWireThatCarriesGradientsIsTheFirstDifferenceOfTwoRuns) {
  Training run = OverAWire(2);
  const Seen wanted = TrainOverMessages(run);
  WireFault fault;
  fault.bytes = 4 * SliceElements(run);
  run.wire = &fault;
  run.wire_step = 1;
  const Seen seen = TrainOverMessages(run);
  EXPECT_EQ(fault.damaged, 1);
  ExpectClean(seen);
  const auto compared = FirstDifference(seen.log, wanted.log);
  ASSERT_OK(compared);
  ASSERT_TRUE(compared->difference.has_value());
  EXPECT_EQ(compared->difference->step, 2);
  EXPECT_EQ(compared->difference->kind, "gradients");
  EXPECT_EQ(compared->difference->tensors, std::vector<std::string>({"h.0.w"}));
}

TEST(TensorDumpTest, HasTheElementThatDiffers) {
  const std::string folder = ::testing::TempDir() + "/dumps";
  std::filesystem::remove_all(folder);
  Training good = {.options = Options(3), .dump = folder + "/good"};
  const Seen wanted = Train(good);
  Training bad = {.options = Options(2),
                  .flip = Flip{.step = kSteps - 2, .rank = 1, .in_gradient = true},
                  .dump = folder + "/bad"};
  const Seen seen = Train(bad);
  const DigestLog logs[2] = {wanted.log, seen.log};
  const std::string folders[2] = {good.dump, bad.dump};
  // The step of the flip is the first difference; the dumps are of the step behind it.
  const auto compared = FirstDifference(wanted.log, seen.log);
  ASSERT_OK(compared);
  ASSERT_TRUE(compared->difference.has_value());
  EXPECT_EQ(compared->difference->step, kSteps - 1);
  EXPECT_THAT(
      CompareDumps(*compared->difference, logs, folders, 4).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is of another step or run")));
  // Of the dumped step: the weight that was updated by another gradient.
  Difference last = *compared->difference;
  last.step = kSteps;
  last.kind = "weights";
  last.tensor = kParameter;
  const auto found = CompareDumps(last, logs, folders, 4);
  ASSERT_OK(found);
  ASSERT_GE(found->differing, 1);
  EXPECT_EQ(found->first[0].element, seen.flipped);
  EXPECT_EQ(found->first[0].at, std::vector<int64_t>({seen.flipped}));
  EXPECT_NE(found->first[0].bits[0], found->first[0].bits[1]);
  EXPECT_EQ(std::filesystem::file_size(found->paths[0]), 2u * 1500u);
}

}  // namespace
}  // namespace brigade::digests
