#include "brigade/train/observers/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace brigade::train {
namespace {

constexpr int64_t kColumns = 64;
constexpr int64_t kRows = 14;

}  // namespace

std::string LossCurve(absl::Span<const StepMetrics> steps,
                      absl::Span<const Evaluation> evaluations) {
  if (steps.empty()) return "";
  const int64_t last = steps.back().step;
  const auto column = [last](int64_t step) {
    return static_cast<size_t>(std::min(step * kColumns / (last + 1), kColumns - 1));
  };
  std::vector<double> sums(kColumns), counts(kColumns);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const auto extend = [&](double loss) {
    low = std::min(low, loss);
    high = std::max(high, loss);
  };
  for (const StepMetrics& step : steps) {
    if (!std::isfinite(step.loss)) continue;
    sums[column(step.step)] += step.loss;
    counts[column(step.step)] += 1;
  }
  for (size_t c = 0; c < kColumns; ++c) {
    if (counts[c] > 0) extend(sums[c] / counts[c]);
  }
  for (const Evaluation& each : evaluations) {
    if (std::isfinite(each.held_out_loss)) extend(each.held_out_loss);
  }
  if (!(low <= high)) return "";
  const double height = std::max(high - low, 1e-9);

  std::vector<std::string> rows(kRows, std::string(kColumns, ' '));
  const auto mark = [&](size_t c, double loss, char with) {
    const double from_top = (high - loss) / height * (kRows - 1);
    rows[static_cast<size_t>(std::lround(from_top))][c] = with;
  };
  for (size_t c = 0; c < kColumns; ++c) {
    if (counts[c] > 0) mark(c, sums[c] / counts[c], '*');
  }
  for (const Evaluation& each : evaluations) {
    if (std::isfinite(each.held_out_loss)) mark(column(each.step), each.held_out_loss, 'o');
  }

  std::string text;
  for (int64_t r = 0; r < kRows; ++r) {
    const double value = high - height * static_cast<double>(r) / (kRows - 1);
    absl::StrAppend(&text, absl::StrFormat("%7.3f |%s\n", value, rows[static_cast<size_t>(r)]));
  }
  absl::StrAppend(&text, "        +", std::string(kColumns, '-'), "\n");
  absl::StrAppend(&text, absl::StrFormat("         0%*d steps   * training  o held out\n",
                                         static_cast<int>(kColumns) - 1, last));
  return text;
}

}  // namespace brigade::train
