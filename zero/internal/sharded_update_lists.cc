// Which elements an update reads and writes, and where: as lists of segments, in device memory, of
// what ranks exchange, and on the host.

#include <algorithm>
#include <map>
#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/zero/internal/sharded_update.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

// Of LAMB: the tiles of a list.
int64_t TilesOf(const std::vector<optim::UpdateSegment>& segments) {
  constexpr int64_t kTile = kernels::kLambTile;
  int64_t tiles = 0;
  for (const optim::UpdateSegment& s : segments) tiles += (s.size + kTile - 1) / kTile;
  return tiles;
}

}  // namespace

std::vector<kernels::LambTensor> ShardedUpdate::TensorsOf(int index, int64_t first_tile) const {
  constexpr int64_t kTile = kernels::kLambTile;
  const Bucket& bucket = plan_.bucket(index);
  const int64_t part = UpdatedRange(plan_, options_, bucket, streams_.rank()).size / kTile;
  std::vector<kernels::LambTensor> tensors;
  for (const BucketEntry& entry : bucket.entries) {
    tensors.push_back({.first = entry.range.begin / kTile,
                       .count = (entry.range.size + kTile - 1) / kTile,
                       .offset = first_tile,
                       .part = std::max<int64_t>(part, 1),
                       .stride = LambSizesOf(plan_, options_).tiles,
                       .group = plan_.parameter(entry.parameter).spec.group});
  }
  return tensors;
}

std::vector<optim::UpdateList> ShardedUpdate::ListUpdates() {
  // Of the gradient, and of the weights.
  using Types = std::pair<precision::DType, precision::DType>;
  std::map<Types, std::vector<optim::UpdateSegment>> lists;
  // Of 1-bit LAMB: the list of each tensor.
  std::vector<Types> list_of_tensor;
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    const int index = static_cast<int>(b);
    // Muon's matrices have an update of their own, and so has all of Adafactor's.
    if (!bucket.trainable || IsOffloaded(index) || (is_muon() && bucket.coded) || is_adafactor()) {
      continue;
    }
    const Types types = {FinalGradientType(options_, bucket), bucket.dtype};
    std::vector<optim::UpdateSegment>& list = lists[types];
    if (is_one_bit_lamb()) {
      for (const kernels::LambTensor& tensor : TensorsOf(index, TilesOf(list))) {
        tensors_.push_back(tensor);
        list_of_tensor.push_back(types);
      }
    }
    AppendSegments(index, PlaceInMemory(index, FinalGradient(index)), list);
  }
  std::vector<optim::UpdateList> updates;
  // The sums of tiles lie in the order of the lists.
  int64_t tiles = 0;
  for (auto& [types, segments] : lists) {
    for (optim::UpdateSegment& segment : segments) {
      segment.tensor.offset += tiles;
      segment.tensor.stride = LambSizesOf(plan_, options_).tiles;
    }
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (list_of_tensor[t] == types) tensors_[t].offset += tiles;
    }
    tiles += TilesOf(segments);
    updates.push_back({{.grad = types.first}, std::move(segments)});
    if (types.second != precision::DType::kFloat32) updates.back().types.copy = types.second;
  }
  return updates;
}

ShardedUpdate::Place ShardedUpdate::PlaceInMemory(int index, const void* grad) const {
  const ElementRange updated = UpdatedRange(plan_, options_, plan_.bucket(index), streams_.rank());
  Place place = {{0, updated.size}, {}, grad, Weights(index)};
  for (int array = 0; array <= moments_; ++array) place.arrays.push_back(Array(index, array));
  return place;
}

// One segment for each run of entries of the same group, or for each where a tensor's norm counts,
// or its blocks do; padding goes with the entry before it, but counts in no block.
void ShardedUpdate::AppendSegments(int index, const Place& place,
                                   std::vector<optim::UpdateSegment>& segments) const {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t first_element =
      UpdatedRange(plan_, options_, bucket, streams_.rank()).begin + place.range.begin;
  const int64_t grad_bytes = precision::SizeOf(FinalGradientType(options_, bucket));
  const int64_t tile = optim::TensorTile(options_.optimizer.kind);
  const int64_t tiles_before = tile == 1 ? 0 : TilesOf(segments);
  for (size_t first = 0, next = 0; first < bucket.entries.size(); first = next) {
    const auto group_of = [&](size_t entry) {
      const auto parameter = static_cast<size_t>(bucket.entries[entry].parameter);
      return plan_.parameters()[parameter].spec.group;
    };
    do {
      ++next;
    } while (tile == 1 && next < bucket.entries.size() && group_of(next) == group_of(first));
    const ElementRange& tensor = bucket.entries[first].range;
    const int64_t run_end = optim::HasCodes(options_.optimizer.kind) ? tensor.begin + tensor.size
                            : next < bucket.entries.size() ? bucket.entries[next].range.begin
                                                           : bucket.size;
    const int64_t begin = std::max(bucket.entries[first].range.begin, first_element);
    const int64_t end = std::min(run_end, first_element + place.range.size);
    if (begin >= end) continue;
    const char* const grad =
        static_cast<const char*>(place.grad) + (begin - first_element) * grad_bytes;
    segments.push_back(SegmentOf(index, place, begin, end - begin, grad));
    segments.back().group = group_of(first);
    if (tile == 1) continue;
    segments.back().tensor = {.first = tensor.begin / tile,
                              .count = (tensor.size + tile - 1) / tile,
                              .offset = tiles_before,
                              .part = std::max<int64_t>(plan_.slice(bucket) / tile, 1),
                              .stride = 0,
                              .group = segments.back().group};
  }
}

optim::UpdateSegment ShardedUpdate::SegmentOf(int index, const Place& place, int64_t element,
                                              int64_t size, const void* grad) const {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t at =
      element - place.range.begin - UpdatedRange(plan_, options_, bucket, streams_.rank()).begin;
  optim::UpdateSegment segment;
  segment.param = place.arrays[0] + at;
  if (bucket.coded) {
    segment.first_codes = reinterpret_cast<uint8_t*>(place.arrays[1]) + at;
    segment.second_codes = reinterpret_cast<uint8_t*>(place.arrays[2]) + at;
    segment.first_scales = place.arrays[3] + StateArrayOf(options_, bucket, 3).Elements(at);
    segment.second_scales = place.arrays[4] + StateArrayOf(options_, bucket, 4).Elements(at);
  } else {
    if (moments_ > 0) segment.first_moment = place.arrays[1] + at;
    if (moments_ > 1) segment.second_moment = place.arrays[2] + at;
  }
  segment.grad = grad;
  if (IsRounded(bucket)) {
    segment.copy = static_cast<char*>(place.weights) + at * precision::SizeOf(bucket.dtype);
  }
  segment.size = size;
  return segment;
}

absl::Status ShardedUpdate::ListExchangedUpdates() {
  // By the type of the weights.
  std::map<precision::DType, std::vector<optim::UpdateSegment>> lists;
  if (is_one_bit_lamb()) exchange_->SetNumbers(numbers());
  int64_t first_tile = 0;
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    const int index = static_cast<int>(b);
    if (!bucket.trainable) continue;
    const Place place = PlaceInMemory(index, nullptr);
    if (options_.averages_moments()) {
      exchange_->SetMoments(index, Array(index, 0), Array(index, 1), Array(index, 2));
    }
    const ElementRange updated = UpdatedRange(plan_, options_, bucket, streams_.rank());
    for (const ExchangedPiece& piece : MeanPieces(plan_, options_, bucket, streams_.rank())) {
      const int64_t begin = std::max(piece.in_bucket, updated.begin);
      const int64_t end = std::min(piece.in_bucket + piece.size, updated.begin + updated.size);
      if (begin >= end) continue;
      const float* const mean = exchange_->Mean(index) + piece.at + begin - piece.in_bucket;
      lists[bucket.dtype].push_back(SegmentOf(index, place, begin, end - begin, mean));
      optim::UpdateSegment& segment = lists[bucket.dtype].back();
      segment.group = plan_.parameter(bucket.entries[piece.entry].parameter).spec.group;
      if (!is_one_bit_lamb()) continue;
      segment.fresh_moment = place.arrays[kFreshArray] + begin - updated.begin;
      segment.tensor_index =
          static_cast<int32_t>(FirstTensorOf(plan_, index) + static_cast<int64_t>(piece.entry));
      segment.first_tile = first_tile + (begin - updated.begin) / kernels::kLambTile;
    }
    if (!is_one_bit_lamb()) continue;
    for (const kernels::LambTensor& each : TensorsOf(index, first_tile)) {
      exchanged_tensors_.push_back(each);
    }
    first_tile += updated.size / kernels::kLambTile;
  }
  optim::OptimizerOptions optimizer = options_.optimizer;
  if (options_.averages_moments()) {
    optimizer = KeepsVariance();
    // What is exchanged is the first moment.
    for (optim::ParameterGroup& group : optimizer.groups) group.beta1 = 0.0;
  }
  std::vector<optim::UpdateList> updates;
  for (const auto& [dtype, segments] : lists) {
    updates.push_back({{}, segments});
    if (dtype != precision::DType::kFloat32) updates.back().types.copy = dtype;
  }
  if (is_one_bit_lamb()) return CreateOneBitLamb(updates);
  for (const auto& [types, segments] : updates) {
    exchanged_updates_.emplace_back(optimizer, segments, types);
    if (!options_.is_zero_one_adam()) continue;
    kept_updates_.emplace_back(KeepsVariance(), segments, types);
    for (const optim::UpdateSegment& s : segments) {
      auto* const mean = static_cast<float*>(const_cast<void*>(s.grad));
      masks_.push_back({s.second_moment, mean, s.size});
    }
  }
  return absl::OkStatus();
}

optim::OptimizerOptions ShardedUpdate::KeepsVariance() const {
  optim::OptimizerOptions optimizer = options_.optimizer;
  for (optim::ParameterGroup& group : optimizer.groups) group.beta2 = 1.0;
  return optimizer;
}

absl::Status ShardedUpdate::CreateOneBitLamb(const std::vector<optim::UpdateList>& lists) {
  std::vector<int64_t> sizes;
  for (const Bucket& bucket : plan_.buckets()) {
    if (!bucket.trainable) continue;
    for (const BucketEntry& entry : bucket.entries) sizes.push_back(entry.range.size);
  }
  const int rank = options_.traits().whole_optimizer_state ? 0 : streams_.rank();
  BRIGADE_ASSIGN_OR_RETURN(
      one_bit_lamb_, optim::OneBitLambUpdate::Create(options_.optimizer, lists,
                                                     {.ranks = LambRanksOf(plan_, options_),
                                                      .rank = rank,
                                                      .all = exchanged_tensors_,
                                                      .numbers = numbers()},
                                                     LambSizesOf(plan_, options_).tiles, sizes,
                                                     streams_.context()));
  return absl::OkStatus();
}

void ShardedUpdate::ListHostUpdates() {
  std::vector<precision::DType> types;
  std::vector<size_t> sizes;
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    checked_.emplace_back();
    if (!bucket.trainable) continue;
    const int index = static_cast<int>(b);
    if (IsOffloaded(index)) lane_->SetWork(index, WorkOf(index));
    // As GradientLists has them.
    const precision::DType dtype = FinalGradientType(options_, bucket);
    const auto list =
        static_cast<size_t>(std::find(types.begin(), types.end(), dtype) - types.begin());
    if (list == types.size()) {
      types.push_back(dtype);
      sizes.push_back(0);
    }
    if (bucket.counted) checked_.back() = {list, sizes[list]++};
  }
}

HostLane::Work ShardedUpdate::WorkOf(int index) const {
  const Bucket& bucket = plan_.bucket(index);
  optim::UpdateTypes types = {.grad = FinalGradientType(options_, bucket)};
  if (IsRounded(bucket)) types.copy = bucket.dtype;
  HostLane::Work work;
  if (file_ != nullptr) {
    const auto [first, last] = file_->layout().state_of[static_cast<size_t>(index)];
    for (int64_t chunk = first; chunk < last; ++chunk) {
      work.pieces.push_back(ChunkOf(chunk, types));
    }
  } else {
    work.pieces.emplace_back();
    for (int turn = 0; turn < lane_->turns(); ++turn) {
      std::vector<optim::UpdateSegment> segments;
      AppendSegments(index, PlaceInMemory(index, lane_->Gradient(index, turn)), segments);
      work.pieces[0].updates.emplace_back(options_.optimizer, segments, types);
    }
  }
  if (UpdatesInPlace(options_.offload) || options_.offload.file_parameters()) return work;
  work.source = lane_->Weights(index) == nullptr ? Array(index, 0) : lane_->Weights(index);
  work.target = parameters_.Slice(index);
  work.bytes = bucket.bytes() / plan_.ranks();
  return work;
}

HostLane::Piece ShardedUpdate::ChunkOf(int64_t chunk, const optim::UpdateTypes& types) const {
  const FileChunk& held = file_->layout().chunk(chunk);
  const Bucket& bucket = plan_.bucket(held.bucket);
  const int64_t width = precision::SizeOf(bucket.dtype);
  Place place = {.range = held.range};
  for (int array = 0; array < arrays(); ++array) {
    void* const at = file_->Memory(chunk).as<char>().data() +
                     StateBytes(options_, bucket, 0, array, held.range.size);
    place.arrays.push_back(static_cast<float*>(at));
  }
  place.weights = static_cast<char*>(Weights(held.bucket)) + held.range.begin * width;
  HostLane::Piece piece = {.chunk = chunk};
  for (int turn = 0; turn < lane_->turns(); ++turn) {
    place.grad = static_cast<const char*>(lane_->Gradient(held.bucket, turn)) +
                 held.range.begin * precision::SizeOf(types.grad);
    std::vector<optim::UpdateSegment> segments;
    AppendSegments(held.bucket, place, segments);
    piece.updates.emplace_back(options_.optimizer, segments, types);
  }
  if (IsRounded(bucket)) return piece;
  piece.master = place.arrays[0];
  piece.weights = place.weights;
  piece.bytes = held.range.size * width;
  return piece;
}

}  // namespace brigade::zero::internal
