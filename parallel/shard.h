#ifndef BRIGADE_PARALLEL_SHARD_H_
#define BRIGADE_PARALLEL_SHARD_H_

// How the parameters of a model are cut over tensor ranks. A model has a number of tensor shards,
// which is a part of it like its width: each shard is multiplied for itself, and sums over shards
// are added up as one tree. A rank holds as many neighbouring shards as there are for each. So the
// number of ranks need not change a bit (parallel/README.md says of what).

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "brigade/device/requirements.h"

namespace brigade::parallel {

// A rank's part of a model's shards.
struct TensorShards {
  // Of the model.
  int count = 1;
  // That share them.
  int ranks = 1;
  int rank = 0;

  // Shards of a rank, and its first one.
  int local() const { return count / ranks; }
  int first() const { return rank * local(); }

  friend bool operator==(const TensorShards&, const TensorShards&) = default;
};

// InvalidArgument naming the numbers, unless each rank gets one shard, or both numbers are powers
// of two and each rank gets as many: the sums of each rank are then subtrees of the tree of all. At
// most 32768 shards.
absl::Status Validate(const TensorShards& shards);

// The same, and that they are those of rank `rank` of a group of `ranks`.
absl::Status Validate(const TensorShards& shards, int rank, int ranks);

// One parameter. What is cut lies on a rank shard by shard, each as the rank of one shard would
// hold it: row-major, its `parts` one after another.
struct Shard {
  // Of the whole parameter.
  std::vector<int64_t> shape = {};
  // Along which it is cut; none: every rank holds all of it.
  std::optional<int> axis = std::nullopt;
  // Equal parts of the axis, of which each is cut: 3 for queries, keys and values side by side.
  int64_t parts = 1;

  // Elements of all of it, and of what a rank holds.
  int64_t size() const;
  int64_t local_size(const TensorShards& shards) const;

  // Whether the rank's elements count in sums over all ranks, as of the squares of a norm: what
  // every rank holds counts on the first one.
  bool counts_on(const TensorShards& shards) const { return axis.has_value() || shards.rank == 0; }
};

// InvalidArgument naming the shape, the axis and what does not divide.
absl::Status Validate(const Shard& shard, const TensorShards& shards);

// Elements that are neighbours on the rank and in the whole parameter.
struct ShardRun {
  int64_t local = 0;
  int64_t global = 0;
  int64_t size = 0;
};

// Calls visit(run) for what a rank holds, in the order in which it lies there: by the index of an
// element in the whole parameter it gets its first value, and its place in a checkpoint.
void ForEachRun(const Shard& shard, const TensorShards& shards,
                absl::FunctionRef<void(const ShardRun&)> visit);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_SHARD_H_
