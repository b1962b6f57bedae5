#ifndef BRIGADE_PARALLEL_GRID_H_
#define BRIGADE_PARALLEL_GRID_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/collectives/communicator.h"

namespace brigade::parallel {

// How many ranks share the model's matrices, a text, the batch and the model's layers. Their
// product is the number of ranks.
struct GridShape {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int pipeline = 1;

  int64_t ranks() const { return int64_t{tensor} * context * data * pipeline; }

  friend bool operator==(const GridShape&, const GridShape&) = default;
};

// Where a rank is, each from 0 on.
struct Coordinates {
  int tensor = 0;
  int context = 0;
  int data = 0;
  int pipeline = 0;

  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

// The groups that a rank is in: ranks that differ from it in the named coordinates alone, in
// ascending order.
//
// kReplica    Data and context: the ranks that hold the same weights, and share the optimizer's
//             state (ZeRO's group).
// kModel      Tensor and pipeline: the ranks that hold one copy of the model.
// kTied       The first and the last rank of the pipeline, which share tied embeddings; other ranks
//             are in no such group.
enum class GridGroup : uint8_t {
  kTensor,
  kContext,
  kData,
  kReplica,
  kPipeline,
  kModel,
  kTied,
  kWorld,
};
inline constexpr GridGroup kGridGroups[] = {
    GridGroup::kTensor,   GridGroup::kContext, GridGroup::kData, GridGroup::kReplica,
    GridGroup::kPipeline, GridGroup::kModel,   GridGroup::kTied, GridGroup::kWorld,
};

// "tensor", "context", "data", "replica", "pipeline", "model", "tied", "world"
absl::string_view Name(GridGroup group);

// "tensor 2 x context 1 x data 4 x pipeline 2"
std::string ToString(const GridShape& shape);
// "tensor 1, context 0, data 3, pipeline 0"
std::string ToString(const Coordinates& coordinates);

// InvalidArgument naming the extent that is not 1 to 32768, or the product and the number of ranks
// where these differ.
absl::Status Validate(const GridShape& shape, int64_t ranks);

// Tensor is the fastest, then context, data, pipeline: the ranks that talk most are neighbours.
// Source: Megatron-LM's order tp-cp-ep-dp-pp.
Coordinates CoordinatesOf(const GridShape& shape, int rank);
int RankOf(const GridShape& shape, const Coordinates& coordinates);

// The ranks of a rank's group, ascending; none for kTied between the pipeline's ends, or without a
// pipeline.
std::vector<int> RanksOf(const GridShape& shape, GridGroup group, int rank);

// One rank's place among all ranks of a training that is parallel in up to four ways, with a
// communicator for each group that it is in.
//
// Errors       A communicator's error ends its group. The rank that gets it, or that fails by
//              itself, calls Abort, which ends all groups that it is in; ranks that wait in these
//              get the error and do the same, so that it reaches every rank that waits for
//              another. Create does so by itself.
// Memory       What the communicators take: at most seven beside the world's, fewer where extents
//              are 1, and those of Split. On NCCL each takes memory of the GPU.
// Threads      Abort and status from any thread, but not beside Split; the rest from one.
class Grid {
 public:
  // A call of all ranks of `world`, which must outlive the grid; waits. Every group is made now:
  // none when it is first needed, when ranks may come to it in different orders.
  //
  // Errors       Those of Validate, and InvalidArgument on all ranks naming the first one that
  //              gives another shape than rank 0; those of Communicator::Split.
  static absl::StatusOr<std::unique_ptr<Grid>> Create(const GridShape& shape,
                                                      collectives::Communicator& world);

  const GridShape& shape() const { return shape_; }
  const Coordinates& coordinates() const { return coordinates_; }
  int rank() const { return world_.rank(); }

  // Null for kTied on a rank that is in no such group. Groups of the same ranks have one
  // communicator.
  collectives::Communicator* group(GridGroup group) const {
    return groups_[static_cast<size_t>(group)];
  }
  collectives::Communicator& tensor() const { return *group(GridGroup::kTensor); }
  collectives::Communicator& context() const { return *group(GridGroup::kContext); }
  collectives::Communicator& replica() const { return *group(GridGroup::kReplica); }
  collectives::Communicator& pipeline() const { return *group(GridGroup::kPipeline); }
  collectives::Communicator& world() const { return world_; }

  // A communicator beside the group's own, whose calls do not wait for that one's: of the group's
  // ranks that give the same color, in their order; null for a negative color. A call of all ranks
  // of the group, on the host. It lives as long as the grid, and ends with its groups.
  absl::StatusOr<collectives::Communicator*> Split(GridGroup group, int color);

  // Ends every group that this rank is in with one error, which it returns: the one given, and
  // where it comes from. That is this rank with its coordinates or, for the error of a group, which
  // numbers its ranks from 0 on, the group with its ranks and their coordinates; an error that
  // another rank has passed on says so already. Where all ranks are along one axis, and coordinates
  // say nothing new, it stays as it is. OK stands for Cancelled.
  absl::Status Abort(const absl::Status& reason);

  // OK, or the error of a group.
  absl::Status status() const;

 private:
  Grid(const GridShape& shape, collectives::Communicator& world);

  // A communicator of these ranks, if there is one.
  collectives::Communicator* FindGroupOf(const std::vector<int>& ranks) const;
  // The error with its origin: of all groups, or of these ranks of one.
  absl::Status Located(const absl::Status& error) const;
  absl::Status Located(const absl::Status& error, GridGroup group,
                       const std::vector<int>& ranks) const;

  const GridShape shape_;
  const Coordinates coordinates_;
  collectives::Communicator& world_;
  // With their ranks.
  std::vector<std::pair<std::vector<int>, std::unique_ptr<collectives::Communicator>>> made_;
  std::array<collectives::Communicator*, std::size(kGridGroups)> groups_ = {};
  struct Part {
    GridGroup group = GridGroup::kWorld;
    std::vector<int> ranks;
    std::unique_ptr<collectives::Communicator> communicator;
  };
  // Of Split.
  std::vector<Part> parts_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_GRID_H_
