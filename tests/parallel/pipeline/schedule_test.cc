#include "brigade/parallel/pipeline/schedule.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PipelineShape Shape(const std::string& name, int stages, int micro_batches) {
  return {*ParseSchedule(name), stages, micro_batches};
}

std::vector<std::string> Texts(const absl::StatusOr<PipelineSchedule>& schedule) {
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  std::vector<std::string> texts;
  if (!schedule.ok()) return texts;
  for (const StageList& list : schedule->lists) texts.push_back(ToString(*schedule, list));
  return texts;
}

std::vector<std::string> Computations(const std::string& name, int stages, int micro_batches) {
  return Texts(ComputationsOf(Shape(name, stages, micro_batches)));
}

TEST(ScheduleTest, GpipeHasAllForwardPassesFirst) {
  EXPECT_THAT(Computations("gpipe", 2, 3), ElementsAre("F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"));
}

TEST(ScheduleTest, OneForwardOneBackwardIsAsPublished) {
  EXPECT_THAT(Computations("1f1b", 4, 8),
              ElementsAre("F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7",
                          "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
                          "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7",
                          "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"));
  // Fewer micro-batches than stages.
  EXPECT_THAT(Computations("1f1b", 3, 1), ElementsAre("F0 B0", "F0 B0", "F0 B0"));
  EXPECT_THAT(Computations("1f1b", 1, 2), ElementsAre("F0 B0 F1 B1"));
}

TEST(ScheduleTest, ZeroBubbleH1IsAsPublished) {
  EXPECT_THAT(
      Computations("zb-h1", 4, 8),
      ElementsAre("F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7",
                  "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7",
                  "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 W7",
                  "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7"));
  EXPECT_THAT(Computations("zb-h1", 3, 2),
              ElementsAre("F0 F1 B0 W0 B1 W1", "F0 F1 B0 B1 W0 W1", "F0 B0 F1 B1 W0 W1"));
}

TEST(ScheduleTest, InterleavedIsAsPublished) {
  EXPECT_THAT(Computations("interleaved:2", 2, 4),
              ElementsAre("F0 F1 F0' F1' F2 B0' F3 B1' F2' B0 F3' B1 B2' B3' B2 B3",
                          "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3"));
  EXPECT_THAT(Computations("interleaved:3", 1, 2),
              ElementsAre("F0 F0' F0'' B0'' F1 B0' F1' B0 F1'' B1'' B1' B1"));
}

TEST(ScheduleTest, ZeroBubbleVGoesThereAndBack) {
  EXPECT_THAT(Computations("zb-v", 2, 4),
              ElementsAre("F0 F1 F2 F0' B0' W0' F1' B1' W1' F3 B0 W0 F2' B2' W2' B1 W1 F3' B3' W3' "
                          "B2 W2 B3 W3",
                          "F0 F0' F1 F1' B0' W0' F2 B0 W0 F2' B1' W1' F3 B1 W1 F3' B2' W2' B2 B3' "
                          "B3 W2 W3' W3"));
  EXPECT_THAT(Computations("zb-v", 2, 1),
              ElementsAre("F0 F0' B0' W0' B0 W0", "F0 F0' B0' W0' B0 W0"));
  EXPECT_THAT(Computations("zb-v", 1, 2), ElementsAre("F0 F0' B0' W0' F1 B0 W0 F1' B1' W1' B1 W1"));
}

TEST(ScheduleTest, TransfersComeWhereTheClockPutsThem) {
  EXPECT_THAT(Texts(CreateSchedule(Shape("1f1b", 2, 4))),
              ElementsAre("F0 >a0 F1 >a1 <g0 B0 F2 >a2 <g1 B1 F3 >a3 <g2 B2 <g3 B3",
                          "<a0 F0 <a1 B0 >g0 F1 B1 <a2 >g1 F2 B2 <a3 >g2 F3 B3 >g3"));
  // Where the V turns nothing is sent.
  EXPECT_THAT(Texts(CreateSchedule(Shape("zb-v", 2, 1))),
              ElementsAre("F0 >a0 <a0' F0' B0' >g0' W0' <g0 B0 W0",
                          "<a0 F0 F0' >a0' <g0' B0' W0' B0 >g0 W0"));
}

TEST(ScheduleTest, PartsGoRoundOrThereAndBack) {
  const PipelineShape round = Shape("interleaved:2", 3, 3), back = Shape("zb-v", 3, 3);
  std::vector<int> parts, parts_back;
  for (int chunk = 0; chunk < 2; ++chunk) {
    for (int stage = 0; stage < 3; ++stage) {
      parts.push_back(PartOf(round, stage, chunk));
      parts_back.push_back(PartOf(back, stage, chunk));
      EXPECT_EQ(PlaceOf(round, parts.back()), (PartPlace{stage, chunk}));
      EXPECT_EQ(PlaceOf(back, parts_back.back()), (PartPlace{stage, chunk}));
    }
  }
  EXPECT_THAT(parts, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(parts_back, ElementsAre(0, 1, 2, 5, 4, 3));
}

// Whatever the shape: each pass once, and each chunk's sums in ascending micro-batches.
TEST(ScheduleTest, EveryListHasEachPassOnce) {
  for (const char* const name : {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-v"}) {
    for (int p = 1; p <= 4; ++p) {
      for (int m = 1; m <= 9; ++m) {
        const PipelineShape shape = Shape(name, p, m);
        if (!Validate(shape).ok()) continue;
        const bool splits = SplitsBackward(shape.schedule.kind);
        const PipelineSchedule schedule = *ComputationsOf(shape);
        ASSERT_EQ(schedule.lists.size(), static_cast<size_t>(p));
        for (const StageList& list : schedule.lists) {
          std::set<std::tuple<ItemKind, int, int>> seen;
          for (const auto& [kind, chunk, i] : list) {
            EXPECT_TRUE(seen.insert({kind, chunk, i}).second);
            EXPECT_TRUE(i == 0 || kind == ItemKind::kForward ||
                        seen.contains({kind, chunk, i - 1}));
            EXPECT_EQ(kind == ItemKind::kBackward, kind != ItemKind::kForward && !splits);
          }
          EXPECT_EQ(list.size(), static_cast<size_t>((splits ? 3 : 2) * m * shape.schedule.chunks));
        }
      }
    }
  }
}

TEST(ScheduleTest, NamesAreReadAndWritten) {
  for (const char* const name :
       {"gpipe", "1f1b", "interleaved:2", "interleaved:7", "zb-h1", "zb-v"}) {
    const auto schedule = ParseSchedule(name);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(ToString(*schedule), name);
  }
  for (const char* const name :
       {"", "1F1B", "interleaved", "interleaved:", "interleaved:1", "interleaved:-2",
        "interleaved:2x", "interleaved:99999999999", "zb-h2", "gpipe "}) {
    EXPECT_THAT(ParseSchedule(name).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is none of gpipe, 1f1b, interleaved:V")))
        << name;
  }
}

TEST(ScheduleTest, NumbersThatDoNotFitAreErrors) {
  const auto error = [](const PipelineShape& shape, const std::string& text) {
    EXPECT_THAT(CreateSchedule(shape).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  error(Shape("1f1b", 0, 8), "0 stages; it must be 1 to 4096");
  error(Shape("1f1b", 4097, 8), "4097 stages");
  error(Shape("1f1b", 2, 0), "0 micro-batches; it must be 1 to 1048576");
  error(Shape("1f1b", 2, -3), "-3 micro-batches");
  error(Shape("interleaved:2", 4, 6),
        "interleaved:2 takes micro-batches in groups of 4, one for each stage: of 6 are 2 left");
  error(Shape("interleaved:2", 4, 3), "of 3 are 3 left");
  error({{ScheduleKind::kInterleaved, 1}, 2, 2},
        "1 chunks on each stage; interleaved:1 takes 2 or more");
  error({{ScheduleKind::kGpipe, 2}, 2, 2}, "2 chunks on each stage; gpipe takes 1");
  error({{ScheduleKind::kZeroBubbleV, 1}, 2, 2}, "1 chunks on each stage; zb-v takes 2");
  error(Shape("interleaved:1000", 2, 1 << 20),
        "1048576 micro-batches of 1000 chunks are 1048576000 forward passes");
}

TEST(ScheduleTest, CollectivesGoToTheEndsOfTheirStages) {
  PipelineSchedule schedule = *CreateSchedule(Shape("gpipe", 3, 1));
  ASSERT_TRUE(AddCollective({"tied", {0, 2}}, schedule).ok());
  ASSERT_TRUE(AddCollective({"norm", {0, 1, 2}}, schedule).ok());
  EXPECT_THAT(Texts(schedule), ElementsAre("F0 >a0 <g0 B0 tied norm", "<a0 F0 >a0 <g0 B0 >g0 norm",
                                           "<a0 F0 B0 >g0 tied norm"));
  const PipelineSchedule before = schedule;
  for (const std::vector<int>& stages : {std::vector{0, 3}, {-1}, {1, 1}, {2, 0}}) {
    EXPECT_THAT(AddCollective({"sum", stages}, schedule),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("sum of stages "), HasSubstr("of 3 stages"))));
  }
  EXPECT_EQ(schedule, before);
}

}  // namespace
}  // namespace brigade::parallel
