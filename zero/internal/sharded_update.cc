#include "brigade/zero/internal/sharded_update.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam.h"
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

ShardedUpdate::ShardedUpdate(const Plan& plan, const ZeroOptions& options, RankFile* file,
                             const GradientStore& gradients, const ParameterStore& parameters,
                             StepStreams& streams)
    : plan_(plan),
      options_(options),
      file_(file),
      parameters_(parameters),
      streams_(streams),
      moments_(optim::Moments(options.optimizer)),
      states_(plan.buckets().size()),
      gradients_(gradients) {}

absl::StatusOr<std::unique_ptr<ShardedUpdate>> ShardedUpdate::Create(
    const Plan& plan, const ZeroOptions& options, RankFile* file, GradientStore& gradients,
    ParameterStore& parameters, StepStreams& streams) {
  std::unique_ptr<ShardedUpdate> update(
      new ShardedUpdate(plan, options, file, gradients, parameters, streams));
  if (options.offload.enabled()) {
    BRIGADE_ASSIGN_OR_RETURN(update->lane_, HostLane::Create(plan, options, file, streams));
  }
  BRIGADE_RETURN_IF_ERROR(update->AllocateState());
  if (update->is_one_bit_lamb()) BRIGADE_RETURN_IF_ERROR(update->AllocateNumbers());
  // After an error of the communicator gradients are not defined: no update uses them, so that the
  // state can still be saved.
  optim::StepControllerOptions control = ControllerOptions(plan, options);
  const std::vector<collectives::Communicator*> communicators = streams.communicators();
  for (size_t c = 0; c < communicators.size(); ++c) {
    control.failure_flags.at(c) = communicators[c]->failure_flag();
  }
  const std::vector<optim::UpdateList> updates = update->ListUpdates(gradients);
  if (options.has_local_steps()) {
    for (const auto& [types, segments] : updates) {
      update->local_updates_.emplace_back(update->KeepsVariance(), segments, types);
    }
  }
  const auto checked = [&](int bucket) {
    return update->Checked(bucket, gradients.FinalSlice(bucket));
  };
  BRIGADE_ASSIGN_OR_RETURN(
      update->executor_,
      optim::StepExecutor::Create(
          options.optimizer, control, streams.world().rank(),
          {GradientLists(plan, options, checked), updates,
           optim::LambRanks{.ranks = LambRanksOf(plan, options),
                            .rank = options.traits().whole_optimizer_state ? 0 : streams.rank(),
                            .tensors = LambSizesOf(plan, options).tensors,
                            .all = update->tensors_,
                            .numbers = update->numbers()}},
          streams.context(), streams.comm()));
  if (HasExchanges(plan, options)) {
    BRIGADE_ASSIGN_OR_RETURN(update->exchange_,
                             GradientExchange::Create(plan, options, gradients, streams));
    BRIGADE_RETURN_IF_ERROR(update->ListExchangedUpdates());
  }
  if (update->is_muon()) {
    const auto arrays_of = [&](int bucket) -> MatrixUpdate::Arrays {
      const void* const grad = options.traits().whole_optimizer_state
                                   ? gradients.FinalWhole(bucket)
                                   : gradients.FinalSlice(bucket);
      const bool is_rounded = IsRounded(plan.bucket(bucket));
      return {update->Array(bucket, 0), update->Array(bucket, 1), grad,
              is_rounded ? update->Weights(bucket) : nullptr};
    };
    BRIGADE_ASSIGN_OR_RETURN(update->matrices_,
                             MatrixUpdate::Create(plan, options, arrays_of, streams));
  }
  if (update->is_adafactor()) {
    const auto arrays_of = [&](int bucket) -> FactoredUpdate::Arrays {
      const void* const grad = options.traits().whole_optimizer_state
                                   ? gradients.FinalWhole(bucket)
                                   : gradients.FinalSlice(bucket);
      const bool is_rounded = IsRounded(plan.bucket(bucket));
      return {update->Array(bucket, 0), update->Array(bucket, 1),
              update->moments_ > 1 ? update->Array(bucket, 2) : nullptr, grad,
              is_rounded ? update->Weights(bucket) : nullptr};
    };
    BRIGADE_ASSIGN_OR_RETURN(update->factored_,
                             FactoredUpdate::Create(plan, options, arrays_of, streams));
  }
  if (update->lane_ == nullptr) return update;
  update->ListHostUpdates();
  gradients.OnFinal([update = update.get()](int bucket, const void* gradient, device::Event* free) {
    return update->TakeGradient(bucket, gradient, free);
  });
  for (size_t b = 0; b < plan.buckets().size(); ++b) {
    const int index = static_cast<int>(b);
    if (update->IsOffloaded(index)) parameters.SetWritten(index, update->lane_->done(index));
  }
  return update;
}

absl::Status ShardedUpdate::AllocateState() {
  if (file_ != nullptr) return absl::OkStatus();
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const int index = static_cast<int>(b);
    const int64_t size = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
    const int first = HasMaster(index) ? 0 : 1;
    const int64_t bytes = StateBytes(options_, bucket, first, moments_ + 1, size);
    const std::string name = absl::StrCat("optimizer state of bucket ", b);
    constexpr auto kPurpose = device::Purpose::kOptimizerState;
    BRIGADE_ASSIGN_OR_RETURN(
        auto state, IsOffloaded(index) ? streams_.context().AllocateHost(bytes, kPurpose, name)
                                       : streams_.context().Allocate(bytes, kPurpose, name));
    BRIGADE_RETURN_IF_ERROR(streams_.comm().FillBytes(state.data(), 0, state.bytes()));
    states_[b] = std::move(state);
  }
  return absl::OkStatus();
}

absl::Status ShardedUpdate::AllocateNumbers() {
  const int64_t tensors = LambSizesOf(plan_, options_).tensors;
  const auto bytes = tensors * static_cast<int64_t>(sizeof(kernels::OneBitLambNumbers));
  BRIGADE_ASSIGN_OR_RETURN(
      numbers_, streams_.context().Allocate(bytes, device::Purpose::kScratch, "tensors' numbers"));
  auto* number = numbers_.as<float>().data();
  for (size_t b = 0; b < states_.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (!bucket.trainable) continue;
    const int index = static_cast<int>(b);
    const ElementRange updated = UpdatedRange(plan_, options_, bucket, streams_.rank());
    for (const BucketEntry& entry : bucket.entries) {
      // Ranges begin at tiles, which have all numbers of a tensor.
      const int64_t at = entry.range.begin - updated.begin;
      if (entry.range.size > 0 && at >= 0 && at < updated.size) {
        kept_numbers_.push_back({number, Array(index, kNumbersArray) + at, kTensorNumbers});
      }
      number += kTensorNumbers;
    }
  }
  return streams_.comm().FillBytes(numbers_.data(), 0, bytes);
}

absl::Status ShardedUpdate::KeepNumbers(const kernels::StepState* state) {
  return kernels::ZeroOneAdamTake(kept_numbers_, state, streams_.comm());
}

absl::Status ShardedUpdate::TakeNumbers(int index) {
  if (!is_one_bit_lamb()) return absl::OkStatus();
  constexpr auto kFloat = precision::DType::kFloat32;
  const Bucket& bucket = plan_.bucket(index);
  const float* whole = Array(index, kNumbersArray);
  const bool has_slice = !options_.traits().whole_optimizer_state;
  // There is no memory for a whole bucket.
  if (has_slice && ExchangesBetween(plan_, options_)) return AddUpNumbers(index);
  if (has_slice) {
    float* const gathered = exchange_->Scratch(index);
    BRIGADE_RETURN_IF_ERROR(
        streams_.AllGather(whole, gathered, plan_.slice(bucket), kFloat, streams_.traffic.setup));
    whole = gathered;
  }
  float* number = numbers_.as<float>().data() + FirstTensorOf(plan_, index) * kTensorNumbers;
  std::vector<kernels::CastSegment> copies;
  for (const BucketEntry& entry : bucket.entries) {
    if (entry.range.size > 0) {
      copies.push_back({whole + entry.range.begin, number, kTensorNumbers});
    }
    number += kTensorNumbers;
  }
  return kernels::Cast(copies, {.source_dtype = kFloat, .target_dtype = kFloat}, streams_.comm());
}

absl::Status ShardedUpdate::AddUpNumbers(int index) {
  constexpr auto kFloat = precision::DType::kFloat32;
  device::Stream& stream = streams_.comm();
  const Bucket& bucket = plan_.bucket(index);
  const ElementRange updated = UpdatedRange(plan_, options_, bucket, streams_.rank());
  float* const first = numbers_.as<float>().data() + FirstTensorOf(plan_, index) * kTensorNumbers;
  const int64_t count = static_cast<int64_t>(bucket.entries.size()) * kTensorNumbers;
  BRIGADE_RETURN_IF_ERROR(stream.FillBytes(first, 0, count * static_cast<int64_t>(sizeof(float))));
  std::vector<kernels::CastSegment> copies;
  float* number = first;
  for (const BucketEntry& entry : bucket.entries) {
    const int64_t at = entry.range.begin - updated.begin;
    if (entry.range.size > 0 && at >= 0 && at < updated.size) {
      copies.push_back({Array(index, kNumbersArray) + at, number, kTensorNumbers});
    }
    number += kTensorNumbers;
  }
  BRIGADE_RETURN_IF_ERROR(
      kernels::Cast(copies, {.source_dtype = kFloat, .target_dtype = kFloat}, stream));
  // One rank of the group has a tensor's numbers, the others add 0.
  return streams_.AddUp(first, first, count, streams_.traffic.setup);
}

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

const void* ShardedUpdate::Checked(int index, const void* gradient) const {
  // Of a slice that is there only on its way.
  if (gradient == nullptr) return nullptr;
  const Bucket& bucket = plan_.bucket(index);
  return static_cast<const char*>(gradient) +
         streams_.shard_group() * plan_.checked(bucket) *
             precision::SizeOf(FinalGradientType(options_, bucket));
}

void* ShardedUpdate::Weights(int index) const {
  if (IsOffloaded(index) && options_.offload.file_parameters()) {
    return file_->Memory(file_->layout().weights_of[static_cast<size_t>(index)]).data();
  }
  if (IsOffloaded(index) && !UpdatesInPlace(options_.offload)) return lane_->Weights(index);
  return options_.traits().whole_optimizer_state ? parameters_.Whole(index)
                                                 : parameters_.Slice(index);
}

float* ShardedUpdate::Array(int index, int array) const {
  if (array > moments_) {
    return attached_[static_cast<size_t>(array - moments_ - 1)][static_cast<size_t>(index)];
  }
  const Bucket& bucket = plan_.bucket(index);
  const bool master = HasMaster(index);
  if (array == 0 && !master) return static_cast<float*>(Weights(index));
  const int64_t size = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
  char* const state = states_[static_cast<size_t>(index)].as<char>().data();
  void* const at = state + StateBytes(options_, bucket, master ? 0 : 1, array, size);
  return static_cast<float*>(at);
}

std::vector<optim::UpdateList> ShardedUpdate::ListUpdates(const GradientStore& gradients) {
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
    const void* const grad = options_.traits().whole_optimizer_state ? gradients.FinalWhole(index)
                                                                     : gradients.FinalSlice(index);
    const Types types = {FinalGradientType(options_, bucket), bucket.dtype};
    std::vector<optim::UpdateSegment>& list = lists[types];
    if (is_one_bit_lamb()) {
      for (const kernels::LambTensor& tensor : TensorsOf(index, TilesOf(list))) {
        tensors_.push_back(tensor);
        list_of_tensor.push_back(types);
      }
    }
    AppendSegments(index, PlaceInMemory(index, grad), list);
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

absl::Status ShardedUpdate::WeightsWritten(int index) {
  if (!IsOffloaded(index) || lane_->Weights(index) == nullptr) return absl::OkStatus();
  return streams_.comm().Copy(lane_->Weights(index), parameters_.Slice(index),
                              plan_.bucket(index).bytes() / plan_.ranks());
}

absl::Status ShardedUpdate::RoundMasterOnDevice(int index) {
  const Bucket& bucket = plan_.bucket(index);
  if (!IsRounded(bucket)) return absl::OkStatus();
  const int64_t size = UpdatedRange(plan_, options_, bucket, streams_.rank()).size;
  return kernels::Cast({{Array(index, 0), Weights(index), size}},
                       {.source_dtype = precision::DType::kFloat32, .target_dtype = bucket.dtype},
                       streams_.comm());
}

absl::Status ShardedUpdate::RoundMaster(int index, ElementRange range, const float* master) {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t width = precision::SizeOf(bucket.dtype);
  void* const weights = static_cast<char*>(Weights(index)) + range.begin * width;
  device::Stream& host = streams_.host();
  if (IsRounded(bucket)) {
    BRIGADE_RETURN_IF_ERROR(kernels::Cast(
        {{master, weights, range.size}},
        {.source_dtype = precision::DType::kFloat32, .target_dtype = bucket.dtype}, host));
  } else {
    BRIGADE_RETURN_IF_ERROR(host.Copy(weights, master, range.size * width));
  }
  return host.Synchronize();
}

absl::Status ShardedUpdate::WeightsFromMaster(int index) {
  const Bucket& bucket = plan_.bucket(index);
  const void* source = file_ == nullptr ? Array(index, 0) : Weights(index);
  if (file_ == nullptr && IsRounded(bucket)) {
    // The master may still be on its way.
    BRIGADE_RETURN_IF_ERROR(streams_.Synchronize());
    BRIGADE_RETURN_IF_ERROR(RoundMaster(index, {0, plan_.slice(bucket)}, Array(index, 0)));
    source = Weights(index);
  }
  void* const slice = parameters_.Slice(index);
  if (slice == nullptr || source == slice) return absl::OkStatus();
  return streams_.comm().Copy(slice, source, bucket.bytes() / plan_.ranks());
}

ObservedArray ShardedUpdate::Observed(int index, const void* gradient) const {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket);
  return {index, {streams_.rank() * slice, slice}, gradient, FinalGradientType(options_, bucket)};
}

absl::Status ShardedUpdate::ShowGradients() {
  if (observer_ == nullptr) return absl::OkStatus();
  std::vector<ObservedArray> arrays;
  for (size_t b = 0; b < states_.size(); ++b) {
    const int index = static_cast<int>(b);
    if (plan_.bucket(index).trainable) {
      arrays.push_back(Observed(index, gradients_.FinalSlice(index)));
    }
  }
  return observer_->OnGradients(arrays, streams_.comm());
}

absl::Status ShardedUpdate::TakeGradient(int index, const void* gradient, device::Event* free) {
  if (observer_ != nullptr) {
    const ObservedArray array = Observed(index, gradient);
    BRIGADE_RETURN_IF_ERROR(observer_->OnGradients({&array, 1}, streams_.comm()));
  }
  if (plan_.bucket(index).counted) {
    const auto& [list, segment] = checked_[static_cast<size_t>(index)];
    BRIGADE_RETURN_IF_ERROR(
        executor_->CheckSegment(list, segment, Checked(index, gradient), streams_.comm()));
  }
  return IsOffloaded(index) ? lane_->TakeGradient(index, gradient, free) : absl::OkStatus();
}

absl::Status ShardedUpdate::UpdateExchanged(StepPhase phase) {
  const bool keeps = phase == StepPhase::kGradients && !kept_updates_.empty();
  if (keeps) BRIGADE_RETURN_IF_ERROR(kernels::ZeroOneAdamMask(masks_, streams_.comm()));
  for (const optim::FusedUpdate& update : phase == StepPhase::kLocal ? local_updates_
                                          : keeps                    ? kept_updates_
                                                                     : exchanged_updates_) {
    BRIGADE_RETURN_IF_ERROR(update.Enqueue(exchange_->decision(), streams_.comm()));
  }
  return exchange_->Finish(phase);
}

absl::Status ShardedUpdate::Meet() {
  BRIGADE_RETURN_IF_ERROR(exchange_->MeetExactly());
  return UpdateExchanged(StepPhase::kMoments);
}

absl::Status ShardedUpdate::Enqueue() {
  const auto gather = [this](absl::Span<const kernels::GradStats> own,
                             absl::Span<kernels::GradStats> all) {
    return streams_.GatherStatistics(own.data(), all.data(),
                                     static_cast<int64_t>(own.size() * sizeof(kernels::GradStats)));
  };
  const auto gather_as = [this](auto own, auto all, int64_t& sent) {
    if (options_.traits().whole_optimizer_state) return absl::OkStatus();
    return streams_.AllGather(own.data(), all.data(),
                              static_cast<int64_t>(own.size() * sizeof(*own.data())),
                              precision::DType::kUint8, sent);
  };
  const auto gather_sums = [&](auto own, auto all) {
    return gather_as(own, all, streams_.traffic.scalars);
  };
  if (const StepPhase phase = gradients_.phase(); phase != StepPhase::kReduced) {
    const auto freeze = [&]() -> absl::Status {
      if (one_bit_lamb_ == nullptr) return absl::OkStatus();
      return one_bit_lamb_->Freeze(
          [&](auto own, auto all) { return gather_as(own, all, streams_.traffic.setup); },
          streams_.comm());
    };
    BRIGADE_RETURN_IF_ERROR(exchange_->Enqueue(controller(), phase, gradients_.tried(), freeze));
    if (one_bit_lamb_ != nullptr) {
      BRIGADE_RETURN_IF_ERROR(
          one_bit_lamb_->Enqueue(exchange_->decision(), gather_sums, streams_.comm()));
      return KeepNumbers(exchange_->decision().state);
    }
    return UpdateExchanged(phase);
  }
  if (lane_ == nullptr) {
    BRIGADE_RETURN_IF_ERROR(ShowGradients());
    BRIGADE_RETURN_IF_ERROR(executor_->Enqueue(gather, gather_sums, streams_.comm()));
    if (matrices_ != nullptr) return matrices_->Enqueue(controller().decision());
    if (factored_ != nullptr) return factored_->Enqueue(controller().decision());
    return is_one_bit_lamb() ? KeepNumbers(controller().state()) : absl::OkStatus();
  }
  BRIGADE_RETURN_IF_ERROR(executor_->Decide(gather, streams_.comm()));
  BRIGADE_RETURN_IF_ERROR(lane_->Update(controller().decision()));
  BRIGADE_RETURN_IF_ERROR(executor_->Update(gather_sums, streams_.comm()));
  return lane_->AwaitCopies();
}

}  // namespace brigade::zero::internal
