#include "brigade/digests/tensor_map.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "brigade/precision/dtype.h"

namespace brigade::digests {

std::vector<ShardPiece> PiecesOf(const parallel::Shard& shard, const parallel::TensorShards& shards,
                                 int64_t begin, int64_t end) {
  std::vector<ShardPiece> pieces;
  if (begin >= end) return pieces;
  if (!shard.axis.has_value()) return {{begin, end - begin, begin, 0, 0}};
  int64_t outer = 1, inner = 1;
  const auto axis = static_cast<size_t>(*shard.axis);
  for (size_t d = 0; d < shard.shape.size(); ++d) {
    if (d < axis) outer *= shard.shape[d];
    if (d > axis) inner *= shard.shape[d];
  }
  // Each shard's rows of all parts are equally far from each other.
  const int64_t stride = shard.shape[axis] / shard.parts * inner;
  const int64_t run = stride / shards.count;
  const int64_t of_shard = outer * shard.parts * run;
  const auto add = [&](int64_t local, int64_t size, int64_t first, bool is_rows) {
    if (size > 0) pieces.push_back({local, size, first, is_rows ? run : 0, is_rows ? stride : 0});
  };
  for (int s = 0; s < shards.local() && of_shard > 0; ++s) {
    const int64_t base = s * of_shard;
    const int64_t from = std::max(begin, base), to = std::min(end, base + of_shard);
    if (from >= to) continue;
    const auto global = [&](int64_t local) {
      return (local - base) / run * stride + (shards.first() + s) * run + (local - base) % run;
    };
    // What is left of a row, then rows from their begin on.
    const int64_t rows = std::min(to, from + (run - (from - base) % run) % run);
    add(from, rows - from, global(from), false);
    add(rows, to - rows, rows < to ? global(rows) : 0, to - rows > run);
  }
  return pieces;
}

absl::StatusOr<TensorMap> TensorMap::Create(const checkpoint::ModelPart& part,
                                            const zero::Plan& plan) {
  TensorMap map;
  map.shards_ = part.shards;
  std::map<std::string, int> numbers;
  const auto add = [&](const std::string& unit, const zero::ParameterSpec& spec) {
    numbers[spec.name] = static_cast<int>(map.tensors_.size());
    const std::vector<int64_t> shape =
        spec.shape.empty() ? std::vector<int64_t>{spec.size} : spec.shape;
    map.tensors_.push_back({unit, spec.name, shape, spec.size});
  };
  for (const zero::UnitSpec& unit : part.model) {
    for (const zero::ParameterSpec& spec : unit.parameters) add(unit.name, spec);
  }
  if (part.model.empty()) {
    for (const zero::Parameter& each : plan.parameters()) {
      add(plan.unit(each.unit).name, each.spec);
    }
  }
  map.held_.resize(map.tensors_.size());
  for (size_t t = 0; t < map.tensors_.size(); ++t) {
    map.shards_of_.push_back(part.parameters.empty() ? parallel::Shard{map.tensors_[t].shape}
                                                     : part.parameters[t]);
  }
  for (const zero::Bucket& bucket : plan.buckets()) {
    map.buckets_.emplace_back();
    for (const zero::BucketEntry& entry : bucket.entries) {
      const zero::ParameterSpec& spec = plan.parameter(entry.parameter).spec;
      const auto found = numbers.find(spec.name);
      if (found == numbers.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("digests: the model has no parameter ", spec.name));
      }
      const auto t = static_cast<size_t>(found->second);
      const parallel::Shard& shard = map.shards_of_[t];
      if (shard.local_size(map.shards_) != spec.size) {
        return absl::InvalidArgumentError(
            absl::StrCat("digests: ", spec.name, " has ", spec.size, " elements on this rank, ",
                         shard.local_size(map.shards_), " by the model"));
      }
      map.held_[t] = {true, shard.axis.has_value(), spec.counted && shard.counts_on(map.shards_)};
      map.buckets_.back().push_back({found->second, entry.range});
      map.most_pieces_ += 2 * map.shards_.local();
    }
  }
  return map;
}

void TensorMap::ForEachPiece(const zero::ObservedArray& array,
                             absl::FunctionRef<void(const TensorPiece&)> visit) const {
  const int64_t width = precision::SizeOf(array.dtype);
  const int64_t array_end = array.range.begin + array.range.size;
  for (const Entry& entry : buckets_[static_cast<size_t>(array.bucket)]) {
    const int64_t begin = std::max(entry.range.begin, array.range.begin);
    const int64_t end = std::min(entry.range.begin + entry.range.size, array_end);
    const int64_t first = entry.range.begin;
    for (const ShardPiece& piece : PiecesOf(shards_of_[static_cast<size_t>(entry.tensor)], shards_,
                                            begin - first, std::max(begin, end) - first)) {
      visit(
          {entry.tensor,
           static_cast<const char*>(array.data) + (first + piece.local - array.range.begin) * width,
           piece.size * width, piece.first * width, piece.run * width, piece.stride * width});
    }
  }
}

}  // namespace brigade::digests
