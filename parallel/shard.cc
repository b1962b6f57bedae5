#include "brigade/parallel/shard.h"

#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "brigade/device/status_macros.h"

namespace brigade::parallel {
namespace {

bool IsPowerOfTwo(int n) { return (n & (n - 1)) == 0; }

int64_t Product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  const auto at = [&](size_t i) { return shape.begin() + static_cast<int64_t>(i); };
  return std::accumulate(at(begin), at(end), int64_t{1}, std::multiplies<>());
}

template <typename... What>
absl::Status Invalid(const What&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

}  // namespace

absl::Status Validate(const TensorShards& shards) {
  constexpr int kMostShards = 1 << 15;
  if (shards.count < 1 || shards.count > kMostShards || shards.ranks < 1 || shards.rank < 0 ||
      shards.rank >= shards.ranks) {
    return Invalid("tensor shards: rank ", shards.rank, " of ", shards.ranks, " with ",
                   shards.count, " shards");
  }
  if (shards.count == shards.ranks) return absl::OkStatus();
  if (shards.count % shards.ranks == 0 && IsPowerOfTwo(shards.count)) return absl::OkStatus();
  return Invalid("tensor shards: ", shards.ranks, " ranks cannot share ", shards.count,
                 " shards: that is one for each rank, or a power of two that they divide");
}

absl::Status Validate(const TensorShards& shards, int rank, int ranks) {
  if (shards.ranks == ranks && shards.rank == rank) return Validate(shards);
  return Invalid("tensor shards: they are of rank ", shards.rank, " of ", shards.ranks,
                 ", the communicator is of rank ", rank, " of ", ranks);
}

int64_t Shard::size() const { return Product(shape, 0, shape.size()); }

int64_t Shard::local_size(const TensorShards& shards) const {
  return axis.has_value() ? size() / shards.ranks : size();
}

absl::Status Validate(const Shard& shard, const TensorShards& shards) {
  BRIGADE_RETURN_IF_ERROR(Validate(shards));
  if (!shard.axis.has_value()) return absl::OkStatus();
  const std::string shape = absl::StrCat("[", absl::StrJoin(shard.shape, ", "), "]");
  const int axis = *shard.axis;
  if (axis < 0 || axis >= static_cast<int>(shard.shape.size())) {
    return Invalid("shard: ", shape, " has no axis ", axis);
  }
  const int64_t extent = shard.shape[static_cast<size_t>(axis)];
  // No product of the two, which may be anything.
  if (shard.parts >= 1 && extent >= 0 && extent % shard.parts == 0 &&
      extent / shard.parts % shards.count == 0) {
    return absl::OkStatus();
  }
  return Invalid("shard: axis ", axis, " of ", shape, " in ", shard.parts,
                 " parts cannot be cut into ", shards.count, " shards");
}

void ForEachRun(const Shard& shard, const TensorShards& shards,
                absl::FunctionRef<void(const ShardRun&)> visit) {
  ShardRun run;
  // Joins what follows a run in the whole parameter too.
  const auto add = [&](int64_t global, int64_t size) {
    if (size == 0) return;
    if (run.size > 0 && run.global + run.size != global) {
      visit(run);
      run = {run.local + run.size, global, 0};
    }
    if (run.size == 0) run.global = global;
    run.size += size;
  };
  if (!shard.axis.has_value()) {
    add(0, shard.size());
  } else {
    const auto axis = static_cast<size_t>(*shard.axis);
    const int64_t outer = Product(shard.shape, 0, axis);
    const int64_t extent = shard.shape[axis];
    const int64_t inner = Product(shard.shape, axis + 1, shard.shape.size());
    const int64_t part = extent / shard.parts, each = part / shards.count;
    for (int s = shards.first(); s < shards.first() + shards.local(); ++s) {
      for (int64_t o = 0; o < outer; ++o) {
        for (int64_t p = 0; p < shard.parts; ++p) {
          add((o * extent + p * part + s * each) * inner, each * inner);
        }
      }
    }
  }
  if (run.size > 0) visit(run);
}

}  // namespace brigade::parallel
