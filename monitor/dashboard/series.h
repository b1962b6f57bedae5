#ifndef BRIGADE_MONITOR_DASHBOARD_SERIES_H_
#define BRIGADE_MONITOR_DASHBOARD_SERIES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace brigade::monitor {

// The values of a tag over steps, in a memory that does not grow with them: where there are many, a
// point is of several that follow each other.
class Series {
 public:
  // At least 2, and even.
  explicit Series(size_t most_points) : most_points_(most_points) {}

  void Add(int64_t step, double value);
  // Drops the points that have later steps.
  void KeepUpTo(int64_t step);

  // {"step":[..],"mean":[..],"least":[..],"most":[..],"per_point":1}: of each point the last step,
  // and the mean, the least and the most of those of its values that are finite; null where none
  // is. Of points of one value without the last two.
  std::string ToJson() const;
  double latest() const { return latest_; }

 private:
  struct Point {
    int64_t step = 0;
    double sum = 0;
    double least = 0;
    double most = 0;
    // Values, and those that are finite.
    int64_t count = 0;
    int64_t finite = 0;
  };

  static void Merge(const Point& from, Point& to);

  const size_t most_points_;
  // Values of a point; the last one may have fewer.
  int64_t per_point_ = 1;
  std::vector<Point> points_;
  double latest_ = 0;
};

// A number of JSON with as many digits as a picture needs; what is not finite is null.
std::string JsonNumber(double value);

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_DASHBOARD_SERIES_H_
