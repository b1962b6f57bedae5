#include "brigade/zero/internal/state_transfer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "brigade/collectives/agree.h"
#include "brigade/device/status_macros.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/zero/internal/consistency_check.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

using precision::DType;

constexpr DType kFloat = DType::kFloat32;

// 4 MiB in float32: of all ranks together.
constexpr int64_t kChunkElements = int64_t{1} << 20;
// 256 bytes of the smallest type.
constexpr int64_t kChunkAlignment = 128;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

absl::Status Convert(const void* source, DType from, void* target, DType to, int64_t size,
                     device::Stream& stream) {
  if (from == to) return stream.Copy(target, source, size * precision::SizeOf(to));
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
      collectives::AgreeOnStatus(ready.ok() ? whole.status() : ready, streams_.communicator()));
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
    BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(written, streams_.communicator()));
    BRIGADE_RETURN_IF_ERROR(
        streams_.Broadcast(whole.data(), bucket.size, kFloat, streams_.traffic.setup));
    BRIGADE_RETURN_IF_ERROR(SetBucket(static_cast<int>(b), static_cast<float*>(whole.data())));
  }
  BRIGADE_RETURN_IF_ERROR(update_.controller().LoadState(
      kernels::InitialStepState(options_.loss_scaler.ToKernelOptions()), stream));
  return streams_.Synchronize();
}

// This rank's slice of the bucket's master, into `target` on the device.
absl::Status StateTransfer::ReadMaster(int index, float* target) {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket);
  if (!bucket.trainable) {
    return Convert(parameters_.Slice(index), bucket.dtype, target, kFloat, slice, streams_.comm());
  }
  return streams_.comm().Copy(target, OwnState(index, 0),
                              slice * static_cast<int64_t>(sizeof(float)));
}

void* StateTransfer::OwnState(int index, int array) const {
  const Bucket& bucket = plan_.bucket(index);
  if (!bucket.trainable) return parameters_.Slice(index);
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
    BRIGADE_RETURN_IF_ERROR(ReadMaster(static_cast<int>(b), mine));
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

absl::StatusOr<StateTransfer::Chunk> StateTransfer::AllocateChunk(const absl::Status& ready) {
  Chunk chunk;
  chunk.elements = RoundUp(kChunkElements / streams_.ranks(), kChunkAlignment);
  const int64_t bytes = chunk.elements * static_cast<int64_t>(sizeof(float));
  const auto allocate = [&]() -> absl::Status {
    BRIGADE_RETURN_IF_ERROR(ready);
    BRIGADE_ASSIGN_OR_RETURN(
        chunk.all, streams_.context().Allocate(bytes * streams_.ranks(),
                                               device::Purpose::kCommunication, "chunk of state"));
    for (Chunk::Host& host : chunk.hosts) {
      BRIGADE_ASSIGN_OR_RETURN(host.memory,
                               streams_.context().AllocateHost(bytes, "chunk of state"));
      BRIGADE_ASSIGN_OR_RETURN(host.copied, streams_.context().CreateEvent("chunk copied"));
      BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*host.copied));
    }
    return absl::OkStatus();
  };
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(allocate(), streams_.communicator()));
  return chunk;
}

// What one rank has read of its slice, to where it belongs: elements [begin, begin + count) of each
// rank's slice of an array, of this rank in `mine` on the host.
absl::Status StateTransfer::SetRange(int index, int array, ElementRange range, const void* mine,
                                     Chunk& chunk) {
  const Bucket& bucket = plan_.bucket(index);
  device::Stream& stream = streams_.comm();
  const StageTraits traits = options_.traits();
  const DType dtype = bucket.trainable ? kFloat : bucket.dtype;
  const int64_t width = precision::SizeOf(dtype), slice = plan_.slice(bucket);
  const bool weights = array == 0;
  const bool gathers = weights ? traits.whole_parameters : traits.whole_optimizer_state;
  char* const all = static_cast<char*>(chunk.all.data());
  char* const own = all + streams_.rank() * range.size * width;
  // Otherwise it is copied from the host to where it stays.
  const bool passes = gathers || (weights && dtype != bucket.dtype);
  if (passes) BRIGADE_RETURN_IF_ERROR(stream.Copy(own, mine, range.size * width));
  if (gathers) {
    BRIGADE_RETURN_IF_ERROR(
        streams_.AllGather(own, all, range.size, dtype, streams_.traffic.setup));
  }
  const int first = gathers ? 0 : streams_.rank();
  const int last = gathers ? streams_.ranks() : first + 1;
  for (int rank = first; rank < last; ++rank) {
    const void* const from = passes ? all + rank * range.size * width : mine;
    // Of an array that is whole here, or of this rank's slice.
    const auto at = [&](bool whole) { return (whole ? rank * slice : 0) + range.begin; };
    if (weights) {
      void* const array_of_weights =
          traits.whole_parameters ? parameters_.Whole(index) : parameters_.Slice(index);
      BRIGADE_RETURN_IF_ERROR(
          Convert(from, dtype,
                  static_cast<char*>(array_of_weights) +
                      at(traits.whole_parameters) * precision::SizeOf(bucket.dtype),
                  bucket.dtype, range.size, stream));
    }
    const bool has_place = traits.whole_optimizer_state || rank == streams_.rank();
    if (!bucket.trainable || (weights && !HasMaster(bucket)) || !has_place) continue;
    BRIGADE_RETURN_IF_ERROR(stream.Copy(
        update_.Array(index, array) + at(traits.whole_optimizer_state), from, range.size * width));
  }
  return absl::OkStatus();
}

absl::Status StateTransfer::Load(
    const absl::Status& ready, const kernels::StepState& state,
    absl::FunctionRef<absl::Status(int bucket, int array, ElementRange range, void* values)> read) {
  const absl::Status checked = ready.ok() ? update_.controller().CheckState(state) : ready;
  BRIGADE_ASSIGN_OR_RETURN(Chunk chunk, AllocateChunk(checked));
  BRIGADE_RETURN_IF_ERROR(AgreeOnStep(state, streams_.communicator()));
  absl::Status status;
  for (int b = 0; b < static_cast<int>(plan_.buckets().size()); ++b) {
    const Bucket& bucket = plan_.bucket(b);
    for (int array = 0; array < (bucket.trainable ? update_.arrays() : 1); ++array) {
      for (int64_t begin = 0; begin < plan_.slice(bucket); begin += chunk.elements) {
        const ElementRange range = {begin, std::min(chunk.elements, plan_.slice(bucket) - begin)};
        std::swap(chunk.hosts[0], chunk.hosts[1]);
        Chunk::Host& host = chunk.hosts[0];
        BRIGADE_RETURN_IF_ERROR(host.copied->Synchronize());
        // After an error of `read` this rank takes part in the gathers that remain.
        if (status.ok()) status = read(b, array, range, host.memory.data());
        BRIGADE_RETURN_IF_ERROR(SetRange(b, array, range, host.memory.data(), chunk));
        BRIGADE_RETURN_IF_ERROR(streams_.comm().Record(*host.copied));
      }
    }
    BRIGADE_RETURN_IF_ERROR(parameters_.MarkWritten(b));
  }
  BRIGADE_RETURN_IF_ERROR(update_.controller().LoadState(state, streams_.comm()));
  BRIGADE_RETURN_IF_ERROR(streams_.Synchronize());
  return collectives::AgreeOnStatus(status, streams_.communicator());
}

}  // namespace brigade::zero::internal
