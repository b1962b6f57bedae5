#include "brigade/monitor/dashboard/series.h"

#include <limits>

#include "gtest/gtest.h"

namespace brigade::monitor {
namespace {

TEST(SeriesTest, FewValuesAreAPointEach) {
  Series series(4);
  EXPECT_EQ(series.ToJson(), R"({"step":[],"mean":[],"least":[],"most":[],"per_point":1})");
  series.Add(1, 0.5);
  series.Add(2, std::numeric_limits<double>::infinity());
  series.Add(3, -1e-9);
  EXPECT_EQ(series.ToJson(),
            R"({"step":[1,2,3],"mean":[0.5,null,-1e-09],"least":[],"most":[],"per_point":1})");
}

// Where a fifth point would come, two become one: nothing between the least and the most is lost.
TEST(SeriesTest, ManyValuesSharePoints) {
  Series series(4);
  for (int step = 1; step <= 4; ++step) series.Add(step, step);
  series.Add(5, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(series.ToJson(),
            R"({"step":[2,4,5],"mean":[1.5,3.5,null],"least":[1,3,null],"most":[2,4,null],)"
            R"("per_point":2})");
  series.Add(6, 10);
  EXPECT_EQ(series.ToJson(),
            R"({"step":[2,4,6],"mean":[1.5,3.5,10],"least":[1,3,10],"most":[2,4,10],)"
            R"("per_point":2})");
  EXPECT_EQ(series.latest(), 10);
}

TEST(SeriesTest, AMillionValuesAreAFewPointsWithTheSameExtremes) {
  Series series(600);
  for (int step = 0; step < 1000000; ++step) series.Add(step, step == 777777 ? 5 : 1);
  const std::string json = series.ToJson();
  EXPECT_LT(json.size(), 40000u);
  EXPECT_NE(json.find(",5,"), std::string::npos);
}

// A point of several steps goes with the last of them.
TEST(SeriesTest, KeepsWhatIsNotLater) {
  Series series(4);
  for (int64_t step = 1; step <= 4; ++step) series.Add(step, 1);
  series.KeepUpTo(2);
  series.Add(3, 7);
  EXPECT_EQ(series.ToJson(),
            R"({"step":[1,2,3],"mean":[1,1,7],"least":[],"most":[],"per_point":1})");
  for (int64_t step = 4; step <= 6; ++step) series.Add(step, 7);
  series.KeepUpTo(5);
  EXPECT_EQ(series.ToJson(),
            R"({"step":[2,4],"mean":[1,7],"least":[1,7],"most":[1,7],"per_point":2})");
  series.KeepUpTo(0);
  EXPECT_EQ(series.ToJson(), R"({"step":[],"mean":[],"least":[],"most":[],"per_point":2})");
}

}  // namespace
}  // namespace brigade::monitor
