#include "brigade/zero/internal/sharded_update.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/kernels/cast/cast_math.h"
#include "brigade/kernels/zero_one_adam/zero_one_adam.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

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
  const std::vector<optim::UpdateList> updates = update->ListUpdates();
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
      return {update->Array(bucket, 0), update->Array(bucket, 1), update->FinalGradient(bucket),
              update->RoundedWeights(bucket)};
    };
    BRIGADE_ASSIGN_OR_RETURN(update->matrices_,
                             MatrixUpdate::Create(plan, options, arrays_of, streams));
  }
  if (update->is_adafactor()) {
    const auto arrays_of = [&](int bucket) -> FactoredUpdate::Arrays {
      return {update->Array(bucket, 0), update->Array(bucket, 1),
              update->moments_ > 1 ? update->Array(bucket, 2) : nullptr,
              update->FinalGradient(bucket), update->RoundedWeights(bucket)};
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

const void* ShardedUpdate::Checked(int index, const void* gradient) const {
  // Of a slice that is there only on its way.
  if (gradient == nullptr) return nullptr;
  const Bucket& bucket = plan_.bucket(index);
  return static_cast<const char*>(gradient) +
         streams_.shard_group() * plan_.checked(bucket) *
             precision::SizeOf(FinalGradientType(options_, bucket));
}

const void* ShardedUpdate::FinalGradient(int index) const {
  return options_.traits().whole_optimizer_state ? gradients_.FinalWhole(index)
                                                 : gradients_.FinalSlice(index);
}

void* ShardedUpdate::RoundedWeights(int index) const {
  return IsRounded(plan_.bucket(index)) ? Weights(index) : nullptr;
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
