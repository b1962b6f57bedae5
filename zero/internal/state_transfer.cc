#include "brigade/zero/internal/state_transfer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/zero/internal/consistency_check.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

constexpr auto kFloat = precision::DType::kFloat32;

absl::Status Convert(const void* source, precision::DType from, void* target, precision::DType to,
                     int64_t size, device::Stream& stream) {
  return kernels::Cast({{source, target, size}}, {.source_dtype = from, .target_dtype = to},
                       stream);
}

}  // namespace

absl::StatusOr<device::Buffer> StateTransfer::AllocateWhole() const {
  int64_t largest = 0;
  for (const Bucket& bucket : plan_.buckets()) largest = std::max(largest, bucket.size);
  return streams_.context().Allocate(largest * static_cast<int64_t>(sizeof(float)),
                                     device::Purpose::kCommunication, "whole bucket in float32");
}

absl::StatusOr<device::Buffer> StateTransfer::AllocateWholeOnAllRanks(const absl::Status& ready) {
  absl::StatusOr<device::Buffer> whole = AllocateWhole();
  BRIGADE_RETURN_IF_ERROR(
      AgreeOnStatus(ready.ok() ? whole.status() : ready, streams_.communicator()));
  return whole;
}

// Sets the weights and the master of a bucket to `whole`, the bucket in float32, and the moments to
// zero.
absl::Status StateTransfer::SetBucket(int index, const float* whole) {
  const Bucket& bucket = plan_.bucket(index);
  device::Stream& stream = streams_.comm();
  const int64_t slice = plan_.slice(bucket);
  void* const all = options_.traits().whole_parameters ? parameters_.Whole(index) : nullptr;
  BRIGADE_RETURN_IF_ERROR(all != nullptr
                              ? Convert(whole, kFloat, all, bucket.dtype, bucket.size, stream)
                              : Convert(whole + streams_.rank() * slice, kFloat,
                                        parameters_.Slice(index), bucket.dtype, slice, stream));
  if (bucket.trainable) {
    const ElementRange updated = UpdatedRange(plan_, options_, bucket, streams_.rank());
    const int64_t bytes = updated.size * static_cast<int64_t>(sizeof(float));
    if (HasMaster(bucket)) {
      BRIGADE_RETURN_IF_ERROR(stream.Copy(update_.Array(index, 0), whole + updated.begin, bytes));
    }
    for (int array = 1; array < update_.arrays(); ++array) {
      BRIGADE_RETURN_IF_ERROR(stream.FillBytes(update_.Array(index, array), 0, bytes));
    }
  }
  return parameters_.MarkWritten(index);
}

absl::Status StateTransfer::InitializeParameters(
    const absl::Status& ready,
    absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write) {
  // Declared before `whole`, whose destruction waits for the copies from this memory.
  std::vector<float> host;
  BRIGADE_ASSIGN_OR_RETURN(auto whole, AllocateWholeOnAllRanks(ready));
  device::Stream& stream = streams_.comm();
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    absl::Status written;
    if (streams_.rank() == 0) {
      host.assign(static_cast<size_t>(bucket.size), 0.0f);
      for (const BucketEntry& entry : bucket.entries) {
        if (!written.ok()) break;
        written = write(entry.parameter,
                        absl::MakeSpan(host).subspan(static_cast<size_t>(entry.range.begin),
                                                     static_cast<size_t>(entry.range.size)));
      }
      if (written.ok()) {
        written = stream.Copy(whole.data(), host.data(), bucket.size * sizeof(float));
      }
      // The next bucket's values go into the same host memory.
      written.Update(streams_.Synchronize());
    }
    BRIGADE_RETURN_IF_ERROR(AgreeOnStatus(written, streams_.communicator()));
    BRIGADE_RETURN_IF_ERROR(
        streams_.Broadcast(whole.data(), bucket.size, kFloat, streams_.traffic.setup));
    BRIGADE_RETURN_IF_ERROR(SetBucket(static_cast<int>(b), static_cast<float*>(whole.data())));
  }
  BRIGADE_RETURN_IF_ERROR(update_.controller().LoadState(
      kernels::InitialStepState(options_.loss_scaler.ToKernelOptions()), stream));
  return streams_.Synchronize();
}

// This rank's slice of one of the bucket's fp32 arrays, into `target` on the device.
absl::Status StateTransfer::ReadSlice(int index, int array, float* target) {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket);
  if (!bucket.trainable) {
    return Convert(parameters_.Slice(index), bucket.dtype, target, kFloat, slice, streams_.comm());
  }
  return streams_.comm().Copy(target, OwnSlice(index, array),
                              slice * static_cast<int64_t>(sizeof(float)));
}

float* StateTransfer::OwnSlice(int index, int array) const {
  const Bucket& bucket = plan_.bucket(index);
  const bool whole = options_.traits().whole_optimizer_state;
  return update_.Array(index, array) + (whole ? streams_.rank() * plan_.slice(bucket) : 0);
}

absl::Status StateTransfer::ExportParameters(
    const absl::Status& ready,
    absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read) {
  std::vector<float> host;
  BRIGADE_ASSIGN_OR_RETURN(auto whole, AllocateWholeOnAllRanks(ready));
  device::Stream& stream = streams_.comm();
  absl::Status status;
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    const int64_t slice = plan_.slice(bucket);
    float* const mine = static_cast<float*>(whole.data()) + streams_.rank() * slice;
    BRIGADE_RETURN_IF_ERROR(ReadSlice(static_cast<int>(b), 0, mine));
    BRIGADE_RETURN_IF_ERROR(
        streams_.AllGather(mine, whole.data(), slice, kFloat, streams_.traffic.setup));
    host.resize(static_cast<size_t>(bucket.size));
    BRIGADE_RETURN_IF_ERROR(stream.Copy(host.data(), whole.data(), bucket.size * sizeof(float)));
    BRIGADE_RETURN_IF_ERROR(streams_.Synchronize());
    for (const BucketEntry& entry : bucket.entries) {
      // After an error of `read` this rank takes part in the gathers that remain.
      if (!status.ok()) break;
      status = read(entry.parameter,
                    absl::MakeConstSpan(host).subspan(static_cast<size_t>(entry.range.begin),
                                                      static_cast<size_t>(entry.range.size)));
    }
  }
  return status;
}

absl::StatusOr<RankState> StateTransfer::Save() {
  RankState state;
  BRIGADE_ASSIGN_OR_RETURN(auto whole, AllocateWhole());
  device::Stream& stream = streams_.comm();
  state.plan_hash = PlanHash(plan_, options_);
  state.rank = streams_.rank();
  state.ranks = streams_.ranks();
  state.buckets.resize(plan_.buckets().size());
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    const int64_t slice = plan_.slice(bucket);
    for (int array = 0; array < (bucket.trainable ? update_.arrays() : 1); ++array) {
      std::vector<float>& values =
          state.buckets[b].arrays.emplace_back(static_cast<size_t>(slice), 0.0f);
      BRIGADE_RETURN_IF_ERROR(
          ReadSlice(static_cast<int>(b), array, static_cast<float*>(whole.data())));
      BRIGADE_RETURN_IF_ERROR(stream.Copy(values.data(), whole.data(), slice * sizeof(float)));
      BRIGADE_RETURN_IF_ERROR(stream.Synchronize());
    }
  }
  BRIGADE_ASSIGN_OR_RETURN(state.step, update_.controller().SaveState(stream));
  return state;
}

absl::Status StateTransfer::Check(const RankState& state) const {
  BRIGADE_RETURN_IF_ERROR(update_.controller().CheckState(state.step));
  if (state.plan_hash != PlanHash(plan_, options_)) {
    return absl::InvalidArgumentError("the state is of another model, plan or optimizer");
  }
  if (state.rank != streams_.rank() || state.ranks != streams_.ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("the state is of rank ", state.rank, " of ",
                                                   state.ranks, ", this is rank ", streams_.rank(),
                                                   " of ", streams_.ranks()));
  }
  bool fits = state.buckets.size() == plan_.buckets().size();
  for (size_t b = 0; fits && b < state.buckets.size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    const std::vector<std::vector<float>>& arrays = state.buckets[b].arrays;
    fits = arrays.size() == static_cast<size_t>(bucket.trainable ? update_.arrays() : 1) &&
           std::all_of(arrays.begin(), arrays.end(), [&](const std::vector<float>& each) {
             return static_cast<int64_t>(each.size()) == plan_.slice(bucket);
           });
  }
  return fits ? absl::OkStatus()
              : absl::InvalidArgumentError("the state's arrays do not have the plan's sizes");
}

absl::Status StateTransfer::Load(const absl::Status& ready, const RankState& state) {
  BRIGADE_ASSIGN_OR_RETURN(auto whole, AllocateWholeOnAllRanks(ready.ok() ? Check(state) : ready));
  BRIGADE_RETURN_IF_ERROR(AgreeOnStep(state.step, streams_.communicator()));
  device::Stream& stream = streams_.comm();
  auto* const data = static_cast<float*>(whole.data());
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const int index = static_cast<int>(b);
    const int64_t slice = plan_.slice(plan_.buckets()[b]);
    const std::vector<std::vector<float>>& arrays = state.buckets[b].arrays;
    float* const mine = data + streams_.rank() * slice;
    // The weights, whole or in slices, follow from the master of all ranks; moments stay with their
    // owners, or go to all ranks.
    BRIGADE_RETURN_IF_ERROR(stream.Copy(mine, arrays[0].data(), slice * sizeof(float)));
    BRIGADE_RETURN_IF_ERROR(streams_.AllGather(mine, data, slice, kFloat, streams_.traffic.setup));
    BRIGADE_RETURN_IF_ERROR(SetBucket(index, data));
    for (size_t array = 1; array < arrays.size(); ++array) {
      float* const target = OwnSlice(index, static_cast<int>(array));
      BRIGADE_RETURN_IF_ERROR(stream.Copy(target, arrays[array].data(), slice * sizeof(float)));
      if (options_.traits().whole_optimizer_state) {
        BRIGADE_RETURN_IF_ERROR(streams_.AllGather(target,
                                                   update_.Array(index, static_cast<int>(array)),
                                                   slice, kFloat, streams_.traffic.setup));
      }
    }
  }
  BRIGADE_RETURN_IF_ERROR(update_.controller().LoadState(state.step, stream));
  return streams_.Synchronize();
}

}  // namespace brigade::zero::internal
