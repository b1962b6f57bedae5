#include "brigade/profile/step_profile.h"

#include <limits>
#include <string>
#include <vector>

#include "brigade/profile/profile_text.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::profile {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A rank of a model of one unit, whose ridge is at 10 operations a byte: forward 10 s of products
// and 2 s of attention, backward 15 s, 3 s made again, 5 s of waits, 5 s without anything.
RankStep OneRank() {
  RankStep step = {.seconds = 42, .main = "compute"};
  UnitSize unit = {.name = "h.0", .parameters = 1000};
  unit.flops[0] = {.products = 8000, .attention = 600, .norms = 10, .pointwise = 5};
  unit.flops[1] = {.products = 9000, .attention = 1200, .scores = 300};
  unit.flops[2] = {.products = 1500};
  step.units = {unit};
  const auto row = [&](int place, Pass pass, Kind kind, const char* name, double seconds,
                       double bytes) {
    Row made = {.stream = "compute",
                .place = {place, pass},
                .kind = kind,
                .name = name,
                .calls = 2,
                .seconds = seconds,
                .bytes = bytes};
    step.rows.push_back(made);
  };
  row(0, Pass::kForward, Kind::kProduct, "gemm", 7.5, 10);
  // Two names share the products by their time.
  row(0, Pass::kForward, Kind::kProduct, "gemm_with_bias", 2.5, 1000);
  row(0, Pass::kForward, Kind::kAttention, "attention", 2, 20);
  row(0, Pass::kBackward, Kind::kProduct, "gemm", 10, 30);
  row(0, Pass::kBackward, Kind::kAttention, "attention_backward", 4, 10);
  row(0, Pass::kBackward, Kind::kOther, "layer_norm_backward", 1, 90);
  row(0, Pass::kRecompute, Kind::kProduct, "gemm", 3, 10);
  row(0, Pass::kForward, Kind::kWait, "weights", 5, 0);
  step.rows.back().limits = {0, 1, 4, 0};
  row(-1, Pass::kNone, Kind::kIdle, "idle", 5, 0);
  step.rows.back().limits = {0, 0, 0, 5};
  row(-1, Pass::kNone, Kind::kOptimizer, "adam", 2, 180);
  step.rows.push_back({.stream = "communication",
                       .kind = Kind::kCollective,
                       .name = "sum",
                       .calls = 1,
                       .seconds = 8,
                       .limits = {0, 0, 8, 0}});
  step.sent = {{"gradients", 400}, {"weights", 0}};
  step.calls = {{.stream = "communication",
                 .name = "reduce_scatter",
                 .calls = 3,
                 .seconds = 8,
                 .waiting_seconds = 4,
                 .sent_bytes = 400e9}};
  step.ceilings = {.flops_per_second = 1000,
                   .memory_bytes_per_second = 100,
                   .network_bytes_per_second = 200,
                   .source = "measured",
                   .collective_bytes_per_second = {{"reduce_scatter", 200e9}}};
  return step;
}

Training OneTraining(int ranks) {
  return {.step = 3,
          .ranks = ranks,
          .device = "cpu",
          .dtype = "fp32",
          .parameters = 1000,
          .tokens_of_step = 100,
          .flops_per_token = 200,
          .causal_flops_per_token = 190,
          .pairs_over_causal = 2};
}

const Kernel& Find(const StepProfile& profile, const std::string& name, Pass pass) {
  for (const Kernel& kernel : profile.kernels) {
    if (kernel.row.name == name && kernel.row.place.pass == pass) return kernel;
  }
  ADD_FAILURE() << "no kernel " << name;
  return profile.kernels[0];
}

TEST(StepProfileTest, OperationsOfAUnitGoToItsProductsAndAttentionByTime) {
  const StepProfile profile = Merge(OneTraining(1), {OneRank()});
  EXPECT_DOUBLE_EQ(Find(profile, "gemm", Pass::kForward).flops, 6000);
  EXPECT_DOUBLE_EQ(Find(profile, "gemm_with_bias", Pass::kForward).flops, 2000);
  EXPECT_DOUBLE_EQ(Find(profile, "attention", Pass::kForward).flops, 600);
  // With the scores that it makes again.
  EXPECT_DOUBLE_EQ(Find(profile, "attention_backward", Pass::kBackward).flops, 1500);
  EXPECT_DOUBLE_EQ(Find(profile, "layer_norm_backward", Pass::kBackward).flops, 0);
  EXPECT_DOUBLE_EQ(Find(profile, "gemm", Pass::kRecompute).flops, 1500);
}

TEST(StepProfileTest, BackwardIsMeasuredAndWhatIsMadeAgainIsApart) {
  const StepProfile profile = Merge(OneTraining(1), {OneRank()});
  EXPECT_DOUBLE_EQ(profile.pass_seconds(Pass::kForward), 12);
  EXPECT_DOUBLE_EQ(profile.pass_seconds(Pass::kBackward), 15);
  EXPECT_DOUBLE_EQ(profile.pass_seconds(Pass::kRecompute), 3);
}

TEST(StepProfileTest, EachSecondOfAUnitHasALimit) {
  const StepProfile profile = Merge(OneTraining(1), {OneRank()});
  ASSERT_EQ(profile.units.size(), 2u);
  const Module& unit = profile.units[0];
  EXPECT_EQ(unit.name, "h.0");
  // gemm_with_bias has 2 operations a byte, and the norm's gradient none: memory, with the second
  // of the wait. The rest of the products and attention is above the ridge.
  EXPECT_THAT(unit.limits, ::testing::ElementsAre(7.5 + 2 + 10 + 4 + 3, 2.5 + 1 + 1, 4, 0));
  EXPECT_DOUBLE_EQ(unit.wall_seconds(), 35);
  EXPECT_EQ(Largest(unit.limits), Limit::kCompute);
  const Module& between = profile.units[1];
  EXPECT_EQ(between.name, "between passes");
  EXPECT_THAT(between.limits, ::testing::ElementsAre(0, 2, 0, 5));
  // By the roofline: max(flops / 1000, bytes / 100) of each row.
  EXPECT_DOUBLE_EQ(unit.least_seconds, 6 + 10 + 0.6 + 9 + 1.5 + 0.9 + 1.5);
}

TEST(StepProfileTest, UtilizationIsOfTheSlowestRanksStep) {
  RankStep slow = OneRank();
  slow.seconds = 50;
  const StepProfile profile = Merge(OneTraining(2), {OneRank(), slow});
  EXPECT_DOUBLE_EQ(profile.seconds, 50);
  EXPECT_DOUBLE_EQ(profile.mfu(false), 100 * 200.0 / 50 / 2 / 1000);
  EXPECT_DOUBLE_EQ(profile.mfu(true), 100 * 190.0 / 50 / 2 / 1000);
  // Made again: products of 1500 on each rank, and scores of 300, twice as many of all pairs.
  EXPECT_DOUBLE_EQ(profile.hardware_flops(true), 19000 + 2 * (1500 + 300));
  EXPECT_DOUBLE_EQ(profile.hardware_flops(false), 20000 + 2 * (1500 + 2 * 300));
  // Sums over ranks.
  EXPECT_DOUBLE_EQ(profile.pass_seconds(Pass::kForward), 24);
  EXPECT_DOUBLE_EQ(Find(profile, "gemm", Pass::kForward).flops, 12000);
  EXPECT_EQ(profile.sent[0].bytes, 800);
  EXPECT_DOUBLE_EQ(profile.collective_seconds, 16);
  EXPECT_DOUBLE_EQ(profile.exposed_seconds, 8);
  // Of one of the ranks.
  EXPECT_EQ(profile.units[0].parameters, 1000);
  EXPECT_EQ(profile.ceilings.flops_per_second, 1000);
}

TEST(StepProfileTest, AFactorTakesThePlaceOfWhatIsCountedAgain) {
  const StepProfile profile = Merge(OneTraining(1), {OneRank()}, /*factor=*/1);
  // All of it again: 4/3.
  EXPECT_DOUBLE_EQ(profile.hardware_flops(false), 20000 * 4.0 / 3);
  EXPECT_DOUBLE_EQ(profile.hardware_flops(true), 19000 * 4.0 / 3);
}

TEST(StepProfileTest, RanksOfAPipelineHaveTheirUnits) {
  RankStep first = OneRank(), second = OneRank();
  first.units.push_back({.name = "head"});
  second.units.insert(second.units.begin(), {.name = "h.0"});
  second.units[1].name = "head";
  for (Row& row : second.rows) row.place.unit += row.place.unit >= 0 ? 1 : 0;
  const StepProfile profile = Merge(OneTraining(2), {first, second});
  ASSERT_EQ(profile.units.size(), 3u);
  EXPECT_EQ(profile.units[0].name, "h.0");
  EXPECT_EQ(profile.units[1].name, "head");
  EXPECT_DOUBLE_EQ(profile.units[0].wall_seconds(), 35);
  EXPECT_DOUBLE_EQ(profile.units[1].wall_seconds(), 35);
}

TEST(StepProfileTest, BytesAreTheSameStep) {
  const RankStep step = OneRank();
  ASSERT_OK_AND_ASSIGN(const RankStep read, RankStepFromBytes(ToBytes(step)));
  EXPECT_EQ(ToBytes(read), ToBytes(step));
  EXPECT_EQ(read.seconds, step.seconds);
  EXPECT_EQ(read.main, step.main);
  EXPECT_EQ(read.dropped, step.dropped);
  EXPECT_EQ(read.ceilings.source, step.ceilings.source);
  EXPECT_EQ(read.sent[0].bytes, step.sent[0].bytes);
  EXPECT_EQ(read.rows[7].name, step.rows[7].name);
  EXPECT_EQ(read.rows[7].place, step.rows[7].place);
  EXPECT_EQ(read.rows.size(), step.rows.size());
  EXPECT_EQ(read.rows[7].limits, step.rows[7].limits);
  EXPECT_EQ(read.units[0].flops[1].scores, 300);
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.calls[0].waiting_seconds, 4);
  EXPECT_EQ(read.ceilings.OfCollective("reduce_scatter"), 200e9);
}

TEST(StepProfileTest, OtherBytesAreNoStep) {
  const auto no_step =
      StatusIs(absl::StatusCode::kInvalidArgument, "what a rank has told is no profile");
  const std::string whole = ToBytes(OneRank());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(RankStepFromBytes(whole.substr(0, length)), no_step);
  }
  EXPECT_THAT(RankStepFromBytes(whole + std::string(1, '\0')), no_step);
  // Any other byte ends nothing: what it makes of lengths is refused.
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string other = whole;
    other[at] = static_cast<char>(other[at] ^ 0xff);
    const auto read = RankStepFromBytes(other);
    if (at < 4) {
      EXPECT_THAT(read, no_step) << at;
    }
  }
  // The kind stands before the name's length.
  std::string kind = whole;
  kind[kind.find("gemm") - 9] = 99;
  EXPECT_THAT(RankStepFromBytes(kind), no_step);
  RankStep infinite = OneRank();
  infinite.rows[0].seconds = std::numeric_limits<double>::infinity();
  EXPECT_THAT(RankStepFromBytes(ToBytes(infinite)), no_step);
}

TEST(StepProfileTest, CallsOfAllRanksAreOneRow) {
  RankStep slow = OneRank();
  slow.calls[0].seconds = 4;
  slow.calls[0].waiting_seconds = 0;
  slow.calls.push_back({.stream = "compute", .name = "barrier", .calls = 1, .seconds = 1});
  slow.ceilings.collective_bytes_per_second["reduce_scatter"] = 400e9;
  const StepProfile profile = Merge(OneTraining(2), {OneRank(), slow});
  ASSERT_EQ(profile.calls.size(), 2u);
  EXPECT_EQ(profile.calls[0].calls, 6);
  EXPECT_EQ(profile.calls[0].seconds, 12);
  EXPECT_EQ(profile.calls[0].waiting_seconds, 4);
  EXPECT_EQ(profile.calls[0].sent_bytes, 800e9);
  EXPECT_DOUBLE_EQ(profile.ceilings.OfCollective("reduce_scatter"), 300e9);
  const std::string text = ProfileText(profile, {});
  // 800 GB in 8 s that were no waiting, of 300 GB/s.
  EXPECT_THAT(text, HasSubstr("communication  reduce_scatter         6  12000.000   4000.000 "
                              "800000.000000   100.000   300.000    33.3%\n"));
  EXPECT_THAT(text, HasSubstr("compute        barrier                1   1000.000      0.000     "
                              "0.000000         -         -        -\n"));
}

TEST(StepProfileTest, AMonitorHasNamesAndNumbers) {
  const StepProfile profile = Merge(OneTraining(1), {OneRank()});
  EXPECT_THAT(ValuesOf(profile),
              ::testing::IsSupersetOf({Pair("Train/Profile/forward_seconds", 12.0),
                                       Pair("Train/Profile/backward_seconds", 15.0),
                                       Pair("Train/Profile/mfu", 100 * 200.0 / 42 / 1000),
                                       Pair("Train/Profile/limited_by_network", 4.0 / 42)}));
  EXPECT_THAT(ValuesOfRate(profile, 2.5),
              UnorderedElementsAre(Pair("Train/Samples/mfu", 0.5),
                                   Pair("Train/Samples/hfu", 0.5 * (20000 + 2100) / 20000),
                                   Pair("Train/Samples/tflops", 500e-12)));
}

TEST(ProfileTextTest, TablesAreThereWhereTheyAreAskedFor) {
  const StepProfile profile = Merge(OneTraining(1), {OneRank()});
  const std::string all = ProfileText(profile, {});
  for (const char* const part :
       {"Profile of step 3: 1 x cpu, fp32", "backward, of each rank           15.000000 s",
        "1.25 times forward", "depth 2:", "Units:", "Kernels, collectives and waits",
        "wait_for_weights", "Collectives: sent in the step", "h.0.attention"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  const std::string brief = ProfileText(profile, {.module_depth = 1, .detailed = false});
  EXPECT_THAT(brief, HasSubstr("depth 1:"));
  EXPECT_THAT(brief, Not(HasSubstr("depth 2:")));
  EXPECT_THAT(brief, Not(HasSubstr("Units:")));
  EXPECT_THAT(ProfileText(profile, {.module_depth = 0}), Not(HasSubstr("depth 1:")));
  EXPECT_THAT(ProfileLine(profile), HasSubstr("limited by compute"));
}

TEST(ProfileTextTest, TheLargestModulesComeFirst) {
  RankStep step = OneRank();
  step.units.push_back({.name = "head", .parameters = 5000});
  step.units.push_back({.name = "h.1", .parameters = 10});
  const StepProfile profile = Merge(OneTraining(1), {step});
  EXPECT_THAT(ProfileText(profile, {.top_modules = 1}),
              HasSubstr("parameters          head 5.00 K\n"));
  EXPECT_THAT(ProfileText(profile, {.top_modules = 2}),
              HasSubstr("parameters          head 5.00 K, h.0 1.00 K\n"));
}

TEST(ProfileTextTest, AnEmptyStepHasNoRates) {
  const std::string text = ProfileText(Merge(Training(), {RankStep()}), {});
  EXPECT_THAT(text, HasSubstr("limited by                       -"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace brigade::profile
