#include "brigade/parallel/plan/frontier_svg.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace brigade::parallel {
namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 80, kRight = 30, kTop = 50, kBottom = 60;
// Configurations that are written out.
constexpr int kLabels = 5;

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Text(double x, double y, const char* anchor, absl::string_view text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, absl::string_view style) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2,
                         y2, style);
}

// A step of 1, 2 or 5 times a power of ten that gives about five ticks.
double TickOf(double extent) {
  const double power = std::pow(10, std::floor(std::log10(extent / 5)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (extent / (times * power) <= 7) return times * power;
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(const SearchResult& result, double memory_bytes) : result_(result) {
    const bool has_end = std::isfinite(memory_bytes);
    for (const Candidate& each : result.candidates) {
      most_memory_ = std::max(most_memory_, each.memory.total() / 1e9);
    }
    end_ = has_end ? memory_bytes / 1e9 : 0;
    most_memory_ = 1.03 * std::max(most_memory_, end_);
    // What is much slower than the best is of no interest.
    for (const Candidate& each : result.frontier) {
      most_time_ = std::max(most_time_, 1.15 * each.time.total());
    }
    const double best = result.candidates.front().time.total();
    most_time_ = std::min(std::max(most_time_, 1.5 * best), 3 * best);
  }

  std::string Draw(absl::string_view title) const {
    std::string svg = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"%.0f\" height=\"%.0f\" fill=\"white\"/>\n",
        kWidth, kHeight, kWidth, kHeight);
    absl::StrAppend(&svg, Text(kWidth / 2, 26, "middle", title), Axes(), Dots(), Steps());
    if (end_ > 0) {
      absl::StrAppend(&svg,
                      Line(X(end_), kTop, X(end_), kHeight - kBottom,
                           "stroke=\"#d95f02\" stroke-dasharray=\"6 4\""),
                      Text(X(end_) - 6, kTop + 14, "end", "memory of a rank"));
    }
    return absl::StrCat(svg, Labels(), "</svg>\n");
  }

 private:
  double X(double gigabytes) const {
    return kLeft + gigabytes / most_memory_ * (kWidth - kLeft - kRight);
  }
  double Y(double seconds) const {
    return kHeight - kBottom - seconds / most_time_ * (kHeight - kTop - kBottom);
  }
  std::pair<double, double> Place(const Candidate& candidate) const {
    return {X(candidate.memory.total() / 1e9), Y(candidate.time.total())};
  }

  std::string Axes() const {
    std::string svg;
    const double bottom = kHeight - kBottom, right = kWidth - kRight;
    const double memory_tick = TickOf(most_memory_), time_tick = TickOf(most_time_);
    for (int i = 0; i * memory_tick <= most_memory_; ++i) {
      const double x = X(i * memory_tick);
      absl::StrAppend(&svg, Line(x, kTop, x, bottom, "stroke=\"#dddddd\""),
                      Text(x, bottom + 18, "middle", absl::StrFormat("%g", i * memory_tick)));
    }
    for (int i = 0; i * time_tick <= most_time_; ++i) {
      const double y = Y(i * time_tick);
      absl::StrAppend(&svg, Line(kLeft, y, right, y, "stroke=\"#dddddd\""),
                      Text(kLeft - 8, y + 4, "end", absl::StrFormat("%g", i * time_tick)));
    }
    return absl::StrCat(svg, Line(kLeft, bottom, right, bottom, "stroke=\"#888888\""),
                        Line(kLeft, kTop, kLeft, bottom, "stroke=\"#888888\""),
                        Text((kLeft + right) / 2, kHeight - 14, "middle", "GB per rank"),
                        Text(14, kTop - 14, "start", "seconds a step"));
  }

  std::string Dots() const {
    std::string svg = "<g fill=\"#1f77b4\" fill-opacity=\"0.2\">\n";
    std::set<std::pair<int, int>> taken;
    for (const Candidate& each : result_.candidates) {
      const auto [x, y] = Place(each);
      if (y < kTop || !taken.insert({static_cast<int>(x / 4), static_cast<int>(y / 4)}).second) {
        continue;
      }
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>\n", x, y);
    }
    return svg + "</g>\n";
  }

  // Until more memory buys time, the time stays.
  std::string Steps() const {
    std::string path;
    for (const Candidate& each : result_.frontier) {
      const auto [x, y] = Place(each);
      if (y < kTop) continue;
      if (path.empty()) {
        absl::StrAppendFormat(&path, "M%.1f %.1f", x, y);
      } else {
        absl::StrAppendFormat(&path, "H%.1fV%.1f", x, y);
      }
    }
    return absl::StrCat("<path d=\"", path,
                        "\" fill=\"none\" stroke=\"black\" stroke-width=\"2\"/>\n");
  }

  // The fastest one, and others that are far enough from those that have a label.
  std::string Labels() const {
    std::string svg;
    std::vector<std::pair<double, double>> labelled;
    for (auto each = result_.frontier.rbegin(); each != result_.frontier.rend(); ++each) {
      const auto [x, y] = Place(*each);
      const bool is_near = std::any_of(labelled.begin(), labelled.end(), [&, y = y](auto& other) {
        return std::abs(other.second - y) < 40;
      });
      if (y < kTop || is_near || labelled.size() == kLabels) continue;
      labelled.emplace_back(x, y);
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x, y);
      const std::string text =
          absl::StrFormat("%s: %.3g s", ToString(each->configuration), each->time.total());
      const bool is_right = x > kWidth / 2;
      absl::StrAppend(&svg, "<g stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\">",
                      Text(x + (is_right ? -2 : 8), is_right ? y + 20 : y - 8,
                           is_right ? "end" : "start", text),
                      "</g>\n");
    }
    return svg;
  }

  const SearchResult& result_;
  double most_memory_ = 0, most_time_ = 0, end_ = 0;
};

}  // namespace

std::string FrontierSvg(const SearchResult& result, double memory_bytes, absl::string_view title) {
  return Picture(result, memory_bytes).Draw(title);
}

}  // namespace brigade::parallel
