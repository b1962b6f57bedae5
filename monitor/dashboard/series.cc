#include "brigade/monitor/dashboard/series.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::monitor {

std::string JsonNumber(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.6g", value) : "null";
}

void Series::Merge(const Point& from, Point& to) {
  to.step = from.step;
  to.count += from.count;
  if (from.finite == 0) return;
  to.least = to.finite == 0 ? from.least : std::min(to.least, from.least);
  to.most = to.finite == 0 ? from.most : std::max(to.most, from.most);
  to.sum += from.sum;
  to.finite += from.finite;
}

void Series::Add(int64_t step, double value) {
  latest_ = value;
  const bool is_finite = std::isfinite(value);
  const double finite = is_finite ? value : 0;
  const Point one = {step, finite, finite, finite, 1, is_finite ? 1 : 0};
  if (!points_.empty() && points_.back().count < per_point_) {
    Merge(one, points_.back());
    return;
  }
  if (points_.size() == most_points_) {
    for (size_t i = 0; i < points_.size() / 2; ++i) {
      points_[i] = points_[2 * i];
      Merge(points_[2 * i + 1], points_[i]);
    }
    points_.resize(points_.size() / 2);
    per_point_ *= 2;
  }
  points_.push_back(one);
}

void Series::KeepUpTo(int64_t step) {
  while (!points_.empty() && points_.back().step > step) points_.pop_back();
}

std::string Series::ToJson() const {
  std::string steps, means, leasts, mosts;
  for (const Point& point : points_) {
    const char* const comma = steps.empty() ? "" : ",";
    const auto number = [&](double value) {
      return point.finite == 0 ? "null" : JsonNumber(value);
    };
    absl::StrAppend(&steps, comma, point.step);
    absl::StrAppend(&means, comma, number(point.sum / static_cast<double>(point.finite)));
    if (per_point_ == 1) continue;
    absl::StrAppend(&leasts, comma, number(point.least));
    absl::StrAppend(&mosts, comma, number(point.most));
  }
  return absl::StrCat("{\"step\":[", steps, "],\"mean\":[", means, "],\"least\":[", leasts,
                      "],\"most\":[", mosts, "],\"per_point\":", per_point_, "}");
}

}  // namespace brigade::monitor
