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

}  // namespace
}  // namespace brigade::monitor
