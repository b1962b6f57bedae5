#include "brigade/parallel/grid.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

using collectives::Communicator;

// Four of them are less than 2^63.
constexpr int kMostExtent = 1 << 15;

// Begins what Located adds.
constexpr absl::string_view kOrigin = "grid of tensor ";

// In which coordinates the ranks of a group differ.
struct Free {
  bool tensor = false, context = false, data = false, pipeline = false;
};

Free FreeIn(GridGroup group) {
  switch (group) {
    case GridGroup::kTensor:
      return {.tensor = true};
    case GridGroup::kContext:
      return {.context = true};
    case GridGroup::kData:
      return {.data = true};
    case GridGroup::kReplica:
      return {.context = true, .data = true};
    case GridGroup::kPipeline:
    case GridGroup::kTied:
      return {.pipeline = true};
    case GridGroup::kModel:
      return {.tensor = true, .pipeline = true};
    case GridGroup::kWorld:
      return {true, true, true, true};
  }
  return {};
}

bool IsPipelineEnd(const GridShape& shape, int stage) {
  return stage == 0 || stage == shape.pipeline - 1;
}

// "ranks 4, 5 (0 to 1 in it)"; of many the first ones.
std::string RanksText(const std::vector<int>& ranks) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(ranks.size(), kMost);
  return absl::StrCat(
      "ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<int64_t>(shown), ", "),
      shown < ranks.size() ? ", ..." : "", " (0 to ", ranks.size() - 1, " in it)");
}

// "tensor 0 to 1, context 0, data 3, pipeline 0"
std::string RangeText(const Coordinates& first, const Coordinates& last) {
  const auto range = [](absl::string_view name, int from, int to) {
    return absl::StrCat(name, " ", from, from == to ? "" : absl::StrCat(" to ", to));
  };
  return absl::StrJoin(
      {range("tensor", first.tensor, last.tensor), range("context", first.context, last.context),
       range("data", first.data, last.data), range("pipeline", first.pipeline, last.pipeline)},
      ", ");
}

}  // namespace

absl::string_view Name(GridGroup group) {
  switch (group) {
    case GridGroup::kTensor:
      return "tensor";
    case GridGroup::kContext:
      return "context";
    case GridGroup::kData:
      return "data";
    case GridGroup::kReplica:
      return "replica";
    case GridGroup::kPipeline:
      return "pipeline";
    case GridGroup::kModel:
      return "model";
    case GridGroup::kTied:
      return "tied";
    case GridGroup::kWorld:
      return "world";
  }
  return "invalid";
}

std::string ToString(const GridShape& shape) {
  return absl::StrCat("tensor ", shape.tensor, " x context ", shape.context, " x data ", shape.data,
                      " x pipeline ", shape.pipeline);
}

std::string ToString(const Coordinates& coordinates) { return RangeText(coordinates, coordinates); }

absl::Status Validate(const GridShape& shape, int64_t ranks) {
  const std::pair<absl::string_view, int> extents[] = {{"tensor", shape.tensor},
                                                       {"context", shape.context},
                                                       {"data", shape.data},
                                                       {"pipeline", shape.pipeline}};
  for (const auto& [name, extent] : extents) {
    if (extent >= 1 && extent <= kMostExtent) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("grid: ", name, " is ", extent, "; it must be 1 to ", kMostExtent));
  }
  if (shape.ranks() == ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("grid: ", ToString(shape), " = ", shape.ranks(),
                                                 " ranks, but there are ", ranks));
}

Coordinates CoordinatesOf(const GridShape& shape, int rank) {
  Coordinates at;
  at.tensor = rank % shape.tensor;
  rank /= shape.tensor;
  at.context = rank % shape.context;
  rank /= shape.context;
  at.data = rank % shape.data;
  at.pipeline = rank / shape.data;
  return at;
}

int RankOf(const GridShape& shape, const Coordinates& at) {
  return at.tensor +
         shape.tensor * (at.context + shape.context * (at.data + shape.data * at.pipeline));
}

std::vector<int> RanksOf(const GridShape& shape, GridGroup group, int rank) {
  const Coordinates mine = CoordinatesOf(shape, rank);
  const Free free = FreeIn(group);
  const bool ends = group == GridGroup::kTied;
  std::vector<int> ranks;
  if (ends && (shape.pipeline == 1 || !IsPipelineEnd(shape, mine.pipeline))) return ranks;
  for (int other = 0; other < shape.ranks(); ++other) {
    const Coordinates its = CoordinatesOf(shape, other);
    if ((free.tensor || its.tensor == mine.tensor) &&
        (free.context || its.context == mine.context) && (free.data || its.data == mine.data) &&
        (free.pipeline || its.pipeline == mine.pipeline) &&
        (!ends || IsPipelineEnd(shape, its.pipeline))) {
      ranks.push_back(other);
    }
  }
  return ranks;
}

Grid::Grid(const GridShape& shape, Communicator& world)
    : shape_(shape), coordinates_(CoordinatesOf(shape, world.rank())), world_(world) {}

absl::StatusOr<std::unique_ptr<Grid>> Grid::Create(const GridShape& shape, Communicator& world) {
  // Ranks compare first, so that all of them get the same error.
  const int64_t mine[] = {shape.tensor, shape.context, shape.data, shape.pipeline};
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> all, world.AllGatherHost(mine));
  const auto shape_of = [&](int rank) {
    const int64_t* const its = &all[static_cast<size_t>(4 * rank)];
    return GridShape{static_cast<int>(its[0]), static_cast<int>(its[1]), static_cast<int>(its[2]),
                     static_cast<int>(its[3])};
  };
  for (int rank = 1; rank < world.size(); ++rank) {
    if (shape_of(rank) == shape_of(0)) continue;
    return absl::InvalidArgumentError(absl::StrCat("grid: rank 0 has ", ToString(shape_of(0)),
                                                   ", but rank ", rank, " has ",
                                                   ToString(shape_of(rank))));
  }
  BRIGADE_RETURN_IF_ERROR(Validate(shape, world.size()));
  std::unique_ptr<Grid> grid(new Grid(shape, world));
  for (const GridGroup group : kGridGroups) {
    Communicator*& place = grid->groups_[static_cast<size_t>(group)];
    if (group == GridGroup::kWorld) {
      place = &world;
      continue;
    }
    const std::vector<int> ranks = RanksOf(shape, group, world.rank());
    // All ranks find the same: a group is another one's equal by the extents alone.
    Communicator* const equal = grid->FindGroupOf(ranks);
    if (equal != nullptr) {
      place = equal;
      continue;
    }
    // The lowest rank stands for the group.
    auto made = world.Split(ranks.empty() ? -1 : ranks[0], 0);
    if (!made.ok()) {
      // Others may have theirs, and wait for this rank in the next one.
      world.Abort(made.status());
      return made.status();
    }
    place = made->get();
    if (*made != nullptr) grid->made_.push_back({ranks, *std::move(made)});
  }
  return grid;
}

Communicator* Grid::FindGroupOf(const std::vector<int>& ranks) const {
  if (static_cast<int>(ranks.size()) == world_.size()) return &world_;
  for (const auto& [its, communicator] : made_) {
    if (its == ranks) return communicator.get();
  }
  return nullptr;
}

absl::Status Grid::Located(const absl::Status& error) const {
  if (absl::StrContains(error.message(), kOrigin)) return error;
  // Of one that has not failed the message is empty, too.
  const auto is_of = [&](const Communicator* communicator) {
    return communicator != nullptr && !communicator->status().message().empty() &&
           absl::StrContains(error.message(), communicator->status().message());
  };
  for (const Part& part : parts_) {
    if (is_of(part.communicator.get())) return Located(error, part.group, part.ranks);
  }
  if (std::max({shape_.tensor, shape_.context, shape_.data, shape_.pipeline}) == shape_.ranks()) {
    return error;
  }
  for (const GridGroup group : kGridGroups) {
    if (is_of(this->group(group))) return Located(error, group, RanksOf(shape_, group, rank()));
  }
  return absl::Status(error.code(),
                      absl::StrCat("grid of ", ToString(shape_), ", rank ", rank(), " at ",
                                   ToString(coordinates_), ": ", error.message()));
}

absl::Status Grid::Located(const absl::Status& error, GridGroup group,
                           const std::vector<int>& ranks) const {
  return absl::Status(error.code(), absl::StrCat("grid of ", ToString(shape_), ", ", Name(group),
                                                 " group of ", RanksText(ranks), " at ",
                                                 RangeText(CoordinatesOf(shape_, ranks.front()),
                                                           CoordinatesOf(shape_, ranks.back())),
                                                 ", on rank ", rank(), ": ", error.message()));
}

absl::StatusOr<Communicator*> Grid::Split(GridGroup group, int color) {
  Communicator* const whole = this->group(group);
  if (whole == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("grid: rank ", rank(), " is in no ", Name(group), " group"));
  }
  BRIGADE_ASSIGN_OR_RETURN(auto made, whole->Split(color, /*key=*/0));
  if (made == nullptr) return nullptr;
  BRIGADE_ASSIGN_OR_RETURN(const std::vector<int64_t> ranks, made->AllGatherHost({rank()}));
  return parts_.emplace_back(Part{group, {ranks.begin(), ranks.end()}, std::move(made)})
      .communicator.get();
}

absl::Status Grid::Abort(const absl::Status& reason) {
  const absl::Status located = Located(reason.ok() ? absl::CancelledError("aborted") : reason);
  for (Communicator* const group : groups_) {
    if (group != nullptr) group->Abort(located);
  }
  for (const Part& part : parts_) part.communicator->Abort(located);
  return located;
}

absl::Status Grid::status() const {
  for (const Communicator* const group : groups_) {
    if (group != nullptr) BRIGADE_RETURN_IF_ERROR(group->status());
  }
  for (const Part& part : parts_) BRIGADE_RETURN_IF_ERROR(part.communicator->status());
  return absl::OkStatus();
}

}  // namespace brigade::parallel
