#include "brigade/parallel/pipeline/picture.h"

#include <string>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Draw(const std::string& name, int stages, int micro_batches, double transfer) {
  const auto schedule = CreateSchedule({*ParseSchedule(name), stages, micro_batches});
  EXPECT_OK(schedule);
  PipelineTimes times = EqualTimes(schedule->shape, {1, 1, 1});
  times.transfer = transfer;
  return DrawSvg(*schedule, *Simulate(*schedule, times));
}

// Lines of the picture that contain all of these.
int Lines(const std::string& svg, absl::string_view a, absl::string_view b) {
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(svg, '\n')) {
    lines += line.find(a) != line.npos && line.find(b) != line.npos ? 1 : 0;
  }
  return lines;
}

TEST(PictureTest, HasABoxForEachComputationOfEachChunk) {
  const std::string svg = Draw("zb-v", 2, 4, 0);
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, EndsWith("</svg>\n"));
  // 2 stages of 4 micro-batches, and the legend: forward, inputs, weights of both chunks.
  for (const char* const color :
       {"#9ecae1", "#2171b5", "#fdbe85", "#d95a14", "#badca0", "#318a4a"}) {
    EXPECT_EQ(Lines(svg, "<rect", color), 2 * 4 + 1) << color;
  }
  EXPECT_THAT(svg, HasSubstr(">stage 1</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("stage 2")));
  EXPECT_THAT(svg,
              HasSubstr(">zb-v, 2 stages, 4 micro-batches: time 12.5, bubble 0.5, 4.2 % of the "
                        "work</text>"));
}

TEST(PictureTest, PlacesBoxesByTheirTimes) {
  // 880 pixels for 3 units, from 64 on.
  const std::string svg = Draw("1f1b", 1, 1, 0);
  EXPECT_EQ(Lines(svg, "<rect x=\"64.00\" y=\"44.00\" width=\"293.33\"", "#9ecae1"), 1) << svg;
  EXPECT_EQ(Lines(svg, "<rect x=\"357.33\" y=\"44.00\" width=\"586.67\"", "#fdbe85"), 1) << svg;
  EXPECT_EQ(Lines(svg, "text-anchor=\"middle\"", ">0</text>"), 3);
}

TEST(PictureTest, HasALineForEachTransferThatTakesTime) {
  // 2 edges, 3 micro-batches, there and back, and the legend.
  EXPECT_EQ(Lines(Draw("1f1b", 3, 3, 0.5), "<line", "#555555"), 2 * 3 * 2 + 1);
  EXPECT_THAT(Draw("1f1b", 3, 3, 0.5), HasSubstr(">transfers</text>"));
  EXPECT_THAT(Draw("1f1b", 3, 3, 0), Not(HasSubstr("#555555")));
  EXPECT_THAT(Draw("1f1b", 3, 3, 0), Not(HasSubstr("transfers")));
}

TEST(PictureTest, LeavesOutNumbersThatHaveNoRoom) {
  EXPECT_THAT(Draw("gpipe", 2, 40, 0), HasSubstr(">39</text>"));
  // A backward pass of 880 / 603 * 2 pixels.
  EXPECT_THAT(Draw("gpipe", 2, 200, 0), Not(HasSubstr(">199</text>")));
}

}  // namespace
}  // namespace brigade::parallel
