// What of a model a stage of a pipeline has, and where a model may be cut.

#include "brigade/train/stage_spec.h"

#include <vector>

#include "brigade/parallel/pipeline/schedule_kind.h"
#include "brigade/tests/testing/status_matchers.h"
#include "brigade/train/stage_parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::train {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The first unit's table is used by the third and by the last one.
zero::ModelSpec Model() {
  return {{"first", {{"table", 100}, {"bias", 10}}, {}},
          {"second", {{"a", 20}}, {}},
          {"third", {{"b", 30}}, {"table"}},
          {"last", {{"c", 40}}, {"table"}}};
}

TEST(StageSpecTest, TheWholeModelIsAsItWas) {
  const StageSpec whole(Model());
  EXPECT_TRUE(whole.is_whole());
  EXPECT_THAT(whole.parameters(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(whole.first_units(), ElementsAre(0));
  const zero::ModelSpec spec = whole.Of(Model());
  EXPECT_FALSE(spec[0].parameters[0].tied_outside);
  EXPECT_THAT(spec[3].tied, ElementsAre("table"));
}

TEST(StageSpecTest, ASharedParameterIsTiedOutsideAndCountedOnce) {
  const StageSpec begin(Model(), {{0, 2}}), end(Model(), {{2, 4}});
  EXPECT_THAT(begin.parameters(), ElementsAre(0, 1, 2));
  EXPECT_EQ(begin.UnitOf(2), -1);
  EXPECT_FALSE(begin.has_end());
  zero::ModelSpec spec = begin.Of(Model());
  EXPECT_TRUE(spec[0].parameters[0].tied_outside);
  EXPECT_TRUE(spec[0].parameters[0].counted);
  EXPECT_FALSE(spec[0].parameters[1].tied_outside);

  // The unit that comes first has the copy, the other one is tied to it.
  EXPECT_THAT(end.parameters(), ElementsAre(3, 0, 4));
  EXPECT_THAT(end.parameter_numbers(), ElementsAre(1, -1, -1, 0, 2));
  EXPECT_THAT(end.unit_numbers(), ElementsAre(-1, -1, 0, 1));
  spec = end.Of(Model());
  ASSERT_EQ(spec[0].parameters.size(), 2u);
  EXPECT_EQ(spec[0].parameters[1].name, "table");
  EXPECT_EQ(spec[0].parameters[1].size, 100);
  EXPECT_TRUE(spec[0].parameters[1].tied_outside);
  EXPECT_FALSE(spec[0].parameters[1].counted);
  EXPECT_TRUE(spec[0].tied.empty());
  EXPECT_THAT(spec[1].tied, ElementsAre("table"));
  EXPECT_EQ(spec[1].parameters.size(), 1u);
}

TEST(StageSpecTest, ChunksOfOneStageShareAParameterInside) {
  const StageSpec ends(Model(), {{0, 1}, {3, 4}}), middle(Model(), {{1, 3}});
  EXPECT_THAT(ends.parameters(), ElementsAre(0, 1, 4));
  EXPECT_THAT(ends.first_units(), ElementsAre(0, 1));
  const zero::ModelSpec spec = ends.Of(Model());
  EXPECT_THAT(spec[1].tied, ElementsAre("table"));
  // The third unit's is elsewhere.
  EXPECT_TRUE(spec[0].parameters[0].tied_outside);
  EXPECT_THAT(middle.parameters(), ElementsAre(2, 3, 0));
}

// It is refused by its name; until then nothing is out of bounds.
TEST(StageSpecTest, AModelWhoseNamesAreNotItsOwnIsRefused) {
  const zero::ModelSpec twice = {{"first", {{"a", 1}, {"a", 2}}, {}}, {"second", {{"b", 3}}, {}}};
  const StageSpec whole(twice);
  EXPECT_THAT(whole.parameter_numbers(), ElementsAre(0, -1, 1));
  EXPECT_THAT(whole.parameters(), ElementsAre(0, 2));
  const auto refused = [](const zero::ModelSpec& model, const char* text) {
    EXPECT_THAT(CheckSpec(model), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  EXPECT_OK(CheckSpec(Model()));
  refused(twice, "two parameters are called \"a\"");
  refused({{"first", {{"a", 1}}, {}}, {"second", {{"a", 1}}, {}}},
          "two parameters are called \"a\"");
  refused({{"first", {{"a", 1}}, {}}, {"first", {{"b", 1}}, {}}}, "two units are called \"first\"");
  refused({}, "no units");
  const StageSpec nothing{zero::ModelSpec()};
  EXPECT_FALSE(nothing.has_begin());
  EXPECT_FALSE(nothing.has_end());
}

TEST(StageSpecTest, TheModelOfAStageIsTheWholeOne) {
  const auto refused = [](const auto& change, const char* text) {
    zero::ModelSpec other = Model();
    change(other);
    EXPECT_THAT(CheckSame(Model(), other),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  EXPECT_OK(CheckSame(Model(), Model()));
  refused([](auto& model) { model.resize(2); }, "it has 2 units, not 4");
  refused([](auto& model) { model[1].name = "other"; }, "the unit \"other\", not \"second\"");
  refused([](auto& model) { model[0].parameters.pop_back(); },
          "1 parameters, not 2, in the unit \"first\"");
  refused([](auto& model) { model[2].parameters[0].name = "d"; },
          "the parameter \"d\", not \"b\", in the unit \"third\"");
  refused([](auto& model) { model[3].parameters[0].size = 41; },
          "41 elements, not 40, in the parameter \"c\"");
  refused([](auto& model) { model[3].parameters[0].trainable = false; },
          "no gradient of the parameter \"c\"");
  refused(
      [](auto& model) {
        model[3].parameters[0].shape = {8, 5};
      },
      "the shape [8, 5], not [], of the parameter \"c\"");
  const char* const another = "another type, group or low_rank of the parameter \"c\"";
  refused([](auto& model) { model[3].parameters[0].dtype = precision::DType::kFloat32; }, another);
  refused([](auto& model) { model[3].parameters[0].group = 1; }, another);
  refused([](auto& model) { model[3].parameters[0].low_rank = false; }, another);
  refused([](auto& model) { model[3].tied.clear(); }, "the unit \"last\" tied to \"\"");
}

TEST(StageSpecTest, ChunksThatAreNoneOfTheModelAreRefused) {
  const auto refused = [](std::vector<parallel::StageRange> chunks, const char* text) {
    EXPECT_THAT(StageSpec::Validate(4, chunks),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  EXPECT_OK(StageSpec::Validate(4, {{0, 1}, {1, 4}}));
  refused({}, "no chunk");
  refused({{0, 5}}, "chunk 0 has the stages 0 to 5 of 4");
  refused({{1, 2}, {0, 1}}, "behind 2");
  refused({{1, 1}}, "1 to 1");
}

TEST(StagePartsTest, OnlyTheFirstAndTheLastStageShareParameters) {
  const auto pipeline = [](int stages, const char* schedule) {
    return parallel::PipelineShape{.schedule = parallel::ParseSchedule(schedule).value(),
                                   .stages = stages,
                                   .micro_batches = 4};
  };
  EXPECT_OK(CheckTies(Model(), pipeline(2, "1f1b"), {0, 2, 4}));
  // Both ends are on the first stage, and the middle on the last one.
  EXPECT_OK(CheckTies(Model(), pipeline(2, "zb-v"), {0, 1, 2, 3, 4}));
  EXPECT_THAT(CheckTies(Model(), pipeline(3, "1f1b"), {0, 2, 3, 4}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"first\" of stage 0"), HasSubstr("\"third\" of stage 1"),
                             HasSubstr("share \"table\""))));
}

TEST(StagePartsTest, SharedParametersCountForEachUnit) {
  EXPECT_THAT(ParametersOfUnits(Model()), ElementsAre(110, 20, 130, 140));
}

}  // namespace
}  // namespace brigade::train
