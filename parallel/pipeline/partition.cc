#include "brigade/parallel/pipeline/partition.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat("partition: ", what...));
}

// Weights of ranges of layers. Whole numbers are exact.
class Sums {
 public:
  explicit Sums(absl::Span<const double> weights) : until_{0} {
    for (const double weight : weights) until_.push_back(until_.back() + weight);
  }

  double Of(int begin, int end) const {
    return until_[static_cast<size_t>(end)] - until_[static_cast<size_t>(begin)];
  }

 private:
  std::vector<double> until_;
};

int64_t BytesOf(const MemoryLimit& limit, int begin, int end, int part) {
  int64_t bytes = 0;
  for (int layer = begin; layer < end; ++layer) bytes += limit.bytes(layer, part);
  return bytes;
}

int64_t LimitOf(const MemoryLimit& limit, const PipelineShape& shape, int part) {
  return limit.limit_bytes[static_cast<size_t>(PlaceOf(shape, part).stage)];
}

// The cheapest way to cut the layers from each one on into the last parts, by a dynamic program.
class Cuts {
 public:
  Cuts(const Sums& sums, int layers, const PipelineShape& shape, const MemoryLimit* limit)
      : sums_(sums), layers_(layers), parts_(shape.parts()) {
    for (int part = 0; limit != nullptr && part < parts_; ++part) {
      fits_until_.push_back(FitsUntil(*limit, part, LimitOf(*limit, shape, part)));
    }
  }

  // The least largest part; infinity: there is no way.
  double LeastMaximum() {
    return Solve(
        [&](int begin, int end, double rest) { return std::max(sums_.Of(begin, end), rest); });
  }

  // With parts of at most `largest`, that of the least sum of squares with the smallest boundaries.
  std::vector<int> LeastSquares(double largest) {
    const auto cost = [&](int begin, int end, double rest) {
      const double sum = sums_.Of(begin, end);
      return sum > largest ? kInfinity : sum * sum + rest;
    };
    Solve(cost);
    std::vector<int> boundaries = {0};
    for (int part = 0; part < parts_; ++part) {
      const int begin = boundaries.back();
      int end = begin + 1;
      while (cost(begin, end, RestOf(part, end)) != CostOf(part, begin)) ++end;
      boundaries.push_back(end);
    }
    return boundaries;
  }

  // The first part that does not fit if each before it has as many layers as fit, and its layers:
  // one, or all that are left if it is the last part.
  std::tuple<int, int, int> FirstThatDoesNotFit() const {
    int begin = 0;
    for (int part = 0;; ++part) {
      const bool is_last = part == parts_ - 1;
      const int most = std::min(UntilOf(part, begin), layers_ - (parts_ - 1 - part));
      if (most == begin) return {part, begin, begin + 1};
      if (is_last) return {part, begin, layers_};
      begin = most;
    }
  }

 private:
  // The end of the longest range from each layer on that fits into the part.
  std::vector<int> FitsUntil(const MemoryLimit& limit, int part, int64_t limit_bytes) const {
    std::vector<int> until;
    int end = 0;
    int64_t bytes = 0;
    for (int begin = 0; begin < layers_; ++begin) {
      if (end < begin) end = begin;
      while (end < layers_ && bytes + limit.bytes(end, part) <= limit_bytes) {
        bytes += limit.bytes(end++, part);
      }
      until.push_back(end);
      if (end > begin) bytes -= limit.bytes(begin, part);
    }
    return until;
  }

  int UntilOf(int part, int begin) const {
    return fits_until_.empty() ? layers_
                               : fits_until_[static_cast<size_t>(part)][static_cast<size_t>(begin)];
  }

  double& CostOf(int part, int begin) {
    return costs_[static_cast<size_t>(part)][static_cast<size_t>(begin)];
  }

  // Of the parts after this one, from `end` on.
  double RestOf(int part, int end) {
    return part < parts_ - 1 ? CostOf(part + 1, end) : end == layers_ ? 0 : kInfinity;
  }

  // cost(begin, end, rest) of a part and the cost of those after it.
  template <typename Cost>
  double Solve(const Cost& cost) {
    costs_.assign(static_cast<size_t>(parts_),
                  std::vector<double>(static_cast<size_t>(layers_) + 1, kInfinity));
    for (int part = parts_ - 1; part >= 0; --part) {
      for (int begin = part; begin < layers_; ++begin) {
        for (int end = begin + 1; end <= UntilOf(part, begin); ++end) {
          const double each = cost(begin, end, RestOf(part, end));
          CostOf(part, begin) = std::min(CostOf(part, begin), each);
        }
      }
    }
    return CostOf(0, 0);
  }

  const Sums& sums_;
  const int layers_, parts_;
  // Of each part, where there are limits.
  std::vector<std::vector<int>> fits_until_;
  // Of each part: the cost of it and those after it, from each layer on.
  std::vector<std::vector<double>> costs_;
};

// What boundaries cost where stages have several chunks; less is better.
std::tuple<int64_t, double, double, double> CostOf(const std::vector<int>& boundaries,
                                                   const Sums& sums, const PipelineShape& shape,
                                                   const MemoryLimit* limit) {
  double largest = 0, squares = 0;
  std::vector<double> stages(static_cast<size_t>(shape.stages));
  std::vector<int64_t> bytes(static_cast<size_t>(shape.stages));
  for (int part = 0; part < shape.parts(); ++part) {
    const auto i = static_cast<size_t>(part);
    const auto stage = static_cast<size_t>(PlaceOf(shape, part).stage);
    const double load = sums.Of(boundaries[i], boundaries[i + 1]);
    largest = std::max(largest, load);
    squares += load * load;
    stages[stage] += load;
    if (limit != nullptr) {
      bytes[stage] += BytesOf(*limit, boundaries[i], boundaries[i + 1], part);
    }
  }
  int64_t over = 0;
  for (size_t stage = 0; limit != nullptr && stage < bytes.size(); ++stage) {
    over += std::max<int64_t>(bytes[stage] - limit->limit_bytes[stage], 0);
  }
  return {over, largest, *std::max_element(stages.begin(), stages.end()), squares};
}

// Moves one or two boundaries by a layer while that makes the cost less.
void Improve(const Sums& sums, const PipelineShape& shape, const MemoryLimit* limit,
             std::vector<int>& boundaries) {
  auto least = CostOf(boundaries, sums, shape, limit);
  bool moves = true;
  const auto move = [&](size_t i, int step, size_t j, int other_step) {
    std::vector<int> other = boundaries;
    other[i] += step;
    other[j] += other_step;
    for (const size_t each : {i, j}) {
      if (other[each] <= other[each - 1] || other[each] >= other[each + 1]) return;
    }
    const auto cost = CostOf(other, sums, shape, limit);
    if (!(cost < least)) return;
    least = cost;
    boundaries = other;
    moves = true;
  };
  while (moves) {
    moves = false;
    for (size_t i = 1; i + 1 < boundaries.size(); ++i) {
      for (size_t j = i; j + 1 < boundaries.size(); ++j) {
        for (const int step : {-1, 1}) {
          for (const int other_step : {-1, 0, 1}) move(i, step, j, other_step);
        }
      }
    }
  }
}

absl::Status Exhausted(int part, int begin, int end, int stage, int64_t bytes, int64_t limit) {
  return absl::ResourceExhaustedError(absl::StrCat("partition: part ", part, " on stage ", stage,
                                                   " does not fit: layers ", begin, " to ", end - 1,
                                                   " take ", bytes, " bytes of ", limit));
}

absl::Status CheckLimits(const MemoryLimit& limit, const PipelineShape& shape) {
  if (limit.limit_bytes.size() == static_cast<size_t>(shape.stages)) return absl::OkStatus();
  return Invalid(limit.limit_bytes.size(), " memory limits for ", shape.stages, " stages");
}

}  // namespace

absl::StatusOr<PartitionChoice> ParsePartition(absl::string_view text) {
  using By = PartitionChoice::By;
  if (text == "parameters") return PartitionChoice{By::kParameters};
  if (text == "flops") return PartitionChoice{By::kFlops};
  if (text == "time") return PartitionChoice{By::kTime};
  PartitionChoice choice = {By::kBoundaries};
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    int boundary = 0;
    const int least = choice.boundaries.empty() ? 0 : choice.boundaries.back() + 1;
    if (!absl::SimpleAtoi(piece, &boundary) || boundary < least) {
      choice.boundaries.clear();
      break;
    }
    choice.boundaries.push_back(boundary);
  }
  if (choice.boundaries.size() >= 2 && choice.boundaries.front() == 0) return choice;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text,
                   "\" is none of parameters, flops, time and ascending boundaries from 0 on, as "
                   "0,3,6"));
}

std::string ToString(const PartitionChoice& choice) {
  switch (choice.by) {
    case PartitionChoice::By::kParameters:
      break;
    case PartitionChoice::By::kFlops:
      return "flops";
    case PartitionChoice::By::kTime:
      return "time";
    case PartitionChoice::By::kBoundaries:
      return absl::StrJoin(choice.boundaries, ",");
  }
  return "parameters";
}

absl::Status CheckPartition(absl::Span<const int> boundaries, int layers,
                            const PipelineShape& shape, const MemoryLimit* limit) {
  const auto parts = static_cast<size_t>(shape.parts());
  bool fits =
      boundaries.size() == parts + 1 && boundaries.front() == 0 && boundaries.back() == layers;
  for (size_t i = 1; i < boundaries.size(); ++i) fits &= boundaries[i - 1] < boundaries[i];
  if (!fits) {
    return Invalid("boundaries ", absl::StrJoin(boundaries, ","), "; for ", parts, " parts of ",
                   layers, " layers there are ", parts + 1, " ascending ones from 0 to ", layers);
  }
  if (limit == nullptr) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckLimits(*limit, shape));
  std::vector<int64_t> bytes(static_cast<size_t>(shape.stages));
  for (int part = 0; part < shape.parts(); ++part) {
    const int begin = boundaries[static_cast<size_t>(part)];
    const int end = boundaries[static_cast<size_t>(part) + 1];
    const int stage = PlaceOf(shape, part).stage;
    int64_t& of_stage = bytes[static_cast<size_t>(stage)];
    of_stage += BytesOf(*limit, begin, end, part);
    if (const int64_t most = LimitOf(*limit, shape, part); of_stage > most) {
      return Exhausted(part, begin, end, stage, of_stage, most);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> LeastMaximum(absl::Span<const double> weights,
                                              const PipelineShape& shape,
                                              const MemoryLimit* limit) {
  const int layers = static_cast<int>(weights.size());
  if (shape.stages < 1 || shape.schedule.chunks < 1) {
    return Invalid(shape.stages, " stages with ", shape.schedule.chunks, " chunks");
  }
  if (layers < shape.parts()) {
    return Invalid(layers, " layers for ", shape.parts(), " parts of a pipeline of ", shape.stages,
                   " stages with ", shape.schedule.chunks, " chunks; none may be empty");
  }
  for (const double weight : weights) {
    if (!(weight >= 0)) return Invalid("a weight of ", weight);
  }
  if (limit != nullptr) BRIGADE_RETURN_IF_ERROR(CheckLimits(*limit, shape));
  const Sums sums(weights);
  Cuts cuts(sums, layers, shape, limit);
  const double largest = cuts.LeastMaximum();
  if (largest == kInfinity) {
    const auto [part, begin, end] = cuts.FirstThatDoesNotFit();
    return Exhausted(part, begin, end, PlaceOf(shape, part).stage,
                     BytesOf(*limit, begin, end, part), LimitOf(*limit, shape, part));
  }
  std::vector<int> boundaries = cuts.LeastSquares(largest);
  if (shape.schedule.chunks > 1) Improve(sums, shape, limit, boundaries);
  BRIGADE_RETURN_IF_ERROR(CheckPartition(boundaries, layers, shape, limit));
  return boundaries;
}

}  // namespace brigade::parallel
