#include "brigade/zero/internal/state_transfer.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/agree.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/cast/cast.h"
#include "brigade/zero/internal/consistency_check.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {
namespace {

constexpr auto kFloat = precision::DType::kFloat32;

absl::Status Convert(const void* source, precision::DType from, void* target, precision::DType to,
                     int64_t size, device::Stream& stream) {
  if (from == to) return stream.Copy(target, source, size * precision::SizeOf(to));
  return kernels::Cast({{source, target, size}}, {.source_dtype = from, .target_dtype = to},
                       stream);
}

}  // namespace

// Host memory for two chunks, taken in turn: one is filled while the other is copied to the device.
// On a CPU there is none: the chunks lie in the state itself.
class StateTransfer::Chunks {
 public:
  static absl::StatusOr<Chunks> Create(int64_t bytes, StepStreams& streams) {
    Chunks chunks(bytes, streams.comm());
    if (streams.context().device().kind == device::DeviceKind::kCpu) return chunks;
    for (Chunk& each : chunks.chunks_) {
      BRIGADE_ASSIGN_OR_RETURN(each.memory, streams.context().AllocateHost(
                                                bytes, device::Purpose::kScratch, "state chunk"));
      BRIGADE_ASSIGN_OR_RETURN(each.copied, streams.context().CreateEvent("state chunk copied"));
    }
    return chunks;
  }

  int64_t bytes() const { return bytes_; }

  // Whether Next gives memory of its own.
  bool copies() const { return chunks_[0].memory.data() != nullptr; }
  // Memory that no copy reads any more, for the next CopyTo there.
  absl::StatusOr<void*> Next(void* target) {
    if (!copies()) return target;
    Chunk& chunk = chunks_[next_];
    if (chunk.used) BRIGADE_RETURN_IF_ERROR(chunk.copied->Synchronize());
    return chunk.memory.data();
  }
  absl::Status CopyTo(void* target, int64_t bytes) {
    if (!copies()) return absl::OkStatus();
    Chunk& chunk = chunks_[next_];
    next_ = 1 - next_;
    BRIGADE_RETURN_IF_ERROR(stream_.Copy(target, chunk.memory.data(), bytes));
    chunk.used = true;
    return stream_.Record(*chunk.copied);
  }

 private:
  struct Chunk {
    device::Buffer memory;
    std::unique_ptr<device::Event> copied;
    bool used = false;
  };

  Chunks(int64_t bytes, device::Stream& stream) : bytes_(bytes), stream_(stream) {}

  int64_t bytes_;
  device::Stream& stream_;
  std::array<Chunk, 2> chunks_;
  size_t next_ = 0;
};

absl::StatusOr<device::Buffer> StateTransfer::AllocateWholeOnAllRanks(
    const absl::Status& ready, collectives::Communicator& ranks) {
  int64_t largest = 0;
  for (const Bucket& bucket : plan_.buckets()) largest = std::max(largest, bucket.size);
  absl::StatusOr<device::Buffer> whole =
      streams_.context().Allocate(largest * static_cast<int64_t>(sizeof(float)),
                                  device::Purpose::kCommunication, "whole bucket in fp32");
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(ready.ok() ? whole.status() : ready, ranks));
  return whole;
}

// This rank's slice of a bucket's weights from float32 in device memory, and the other way round. A
// device rounds nothing that lies elsewhere: there the host does, and this waits.
absl::Status StateTransfer::WriteSlice(int index, const float* values) {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket);
  if (options_.offload.parameters == device::Tier::kDevice) {
    return Convert(values, kFloat, parameters_.Slice(index), bucket.dtype, slice, streams_.comm());
  }
  std::vector<float> here(static_cast<size_t>(slice));
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Copy(here.data(), values, slice * sizeof(float)));
  BRIGADE_RETURN_IF_ERROR(streams_.Synchronize());
  const auto write = [&](void* target) -> absl::Status {
    BRIGADE_RETURN_IF_ERROR(
        Convert(here.data(), kFloat, target, bucket.dtype, slice, streams_.host()));
    return streams_.host().Synchronize();
  };
  if (options_.offload.host_parameters()) return write(parameters_.Slice(index));
  return file_->Fill(file_->layout().weights_of[static_cast<size_t>(index)], write);
}

absl::Status StateTransfer::ReadSlice(int index, float* values) {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket);
  const void* source = parameters_.Slice(index);
  if (options_.offload.parameters == device::Tier::kDevice) {
    return Convert(source, bucket.dtype, values, kFloat, slice, streams_.comm());
  }
  // What was enqueued before may write it.
  BRIGADE_RETURN_IF_ERROR(streams_.Synchronize());
  device::Stream& host = streams_.host();
  std::vector<char> from_file;
  if (options_.offload.file_parameters()) {
    from_file.resize(static_cast<size_t>(slice * precision::SizeOf(bucket.dtype)));
    BRIGADE_RETURN_IF_ERROR(file_->CopyNow(index, 0, from_file.data()));
    source = from_file.data();
  }
  std::vector<float> here(static_cast<size_t>(slice));
  BRIGADE_RETURN_IF_ERROR(Convert(source, bucket.dtype, here.data(), kFloat, slice, host));
  BRIGADE_RETURN_IF_ERROR(host.Synchronize());
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Copy(values, here.data(), slice * sizeof(float)));
  return streams_.Synchronize();
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
                              : WriteSlice(index, whole + streams_.rank() * slice));
  if (bucket.trainable && IsInFile(bucket)) {
    BRIGADE_RETURN_IF_ERROR(SetState(index, whole + streams_.rank() * slice));
  } else if (bucket.trainable) {
    const ElementRange updated = UpdatedRange(plan_, options_, bucket, streams_.rank());
    if (update_.HasMaster(index)) {
      BRIGADE_RETURN_IF_ERROR(stream.Copy(update_.Array(index, 0), whole + updated.begin,
                                          updated.size * static_cast<int64_t>(sizeof(float))));
    }
    for (int array = 1; array < update_.arrays(); ++array) {
      const int64_t bytes = StateArrayOf(options_, bucket, array).Bytes(updated.size);
      if (bytes == 0) continue;
      BRIGADE_RETURN_IF_ERROR(stream.FillBytes(update_.Array(index, array), 0, bytes));
    }
  }
  BRIGADE_RETURN_IF_ERROR(update_.WeightsWritten(index));
  return parameters_.MarkWritten(index);
}

// Of a state in the file.
absl::Status StateTransfer::SetState(int index, const float* master) {
  device::Stream& stream = streams_.comm();
  const auto [first, last] = file_->layout().state_of[static_cast<size_t>(index)];
  for (int64_t c = first; c < last; ++c) {
    const FileChunk& chunk = file_->layout().chunk(c);
    const int64_t bytes = chunk.range.size * static_cast<int64_t>(sizeof(float));
    BRIGADE_RETURN_IF_ERROR(file_->Fill(c, [&](char* memory) -> absl::Status {
      BRIGADE_RETURN_IF_ERROR(stream.Copy(memory, master + chunk.range.begin, bytes));
      BRIGADE_RETURN_IF_ERROR(stream.FillBytes(memory + bytes, 0, chunk.bytes - bytes));
      return streams_.Synchronize();
    }));
  }
  return absl::OkStatus();
}

absl::Status StateTransfer::InitializeParameters(
    const absl::Status& ready, const kernels::StepState& step,
    absl::FunctionRef<absl::Status(int parameter, absl::Span<float> values)> write) {
  // Declared before `whole`, whose destruction waits for the copies from this memory.
  std::vector<float> host;
  BRIGADE_ASSIGN_OR_RETURN(auto whole, AllocateWholeOnAllRanks(ready, streams_.world()));
  device::Stream& stream = streams_.comm();
  // This rank's own error, of which the others hear before the next bucket, or at the end.
  absl::Status written;
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    if (written.ok() && streams_.rank() == 0 && streams_.shard_group() == 0) {
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
    written = streams_.AgreeOnStatus(written);
    if (written.ok()) {
      written = streams_.Broadcast(whole.data(), bucket.size, kFloat, streams_.traffic.setup);
    }
    // Of these ranks; others of the world wait for them below.
    if (!written.ok()) break;
    written = SetBucket(static_cast<int>(b), static_cast<float*>(whole.data()));
  }
  if (errors_ != nullptr && written.ok()) written = errors_->ClearErrors();
  if (written.ok() && file_ != nullptr) written = file_->FinishFilling(step);
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(written, streams_.world()));
  return streams_.Synchronize();
}

// This rank's slice of the bucket's master, or of frozen weights, as float32 into device memory.
absl::Status StateTransfer::ReadMaster(int index, float* target) {
  const Bucket& bucket = plan_.bucket(index);
  const int64_t slice = plan_.slice(bucket);
  if (!bucket.trainable) return ReadSlice(index, target);
  const auto bytes = slice * static_cast<int64_t>(sizeof(float));
  if (!IsInFile(bucket)) return streams_.comm().Copy(target, OwnState(index, 0), bytes);
  BRIGADE_RETURN_IF_ERROR(streams_.Synchronize());
  std::vector<float> here(static_cast<size_t>(slice));
  BRIGADE_RETURN_IF_ERROR(file_->CopyNow(index, 0, here.data()));
  BRIGADE_RETURN_IF_ERROR(streams_.comm().Copy(target, here.data(), bytes));
  return streams_.Synchronize();
}

absl::Status StateTransfer::Copy(int index, int array, ElementRange range, void* to,
                                 device::Stream& stream) {
  const Bucket& bucket = plan_.bucket(index);
  if (IsInFile(bucket, array)) return file_->Copy(index, array, range, to, stream);
  const int64_t width = precision::SizeOf(StateArrayOf(options_, bucket, array).dtype);
  const char* const from = static_cast<const char*>(OwnState(index, array));
  return stream.Copy(to, from + range.begin * width, range.size * width);
}

void* StateTransfer::OwnState(int index, int array) const {
  const Bucket& bucket = plan_.bucket(index);
  if (!bucket.trainable) return parameters_.Slice(index);
  if (array >= update_.arrays()) return errors_->Slice(index, array - update_.arrays());
  const int64_t first =
      options_.traits().whole_optimizer_state ? streams_.rank() * plan_.slice(bucket) : 0;
  void* const all = update_.Array(index, array);
  return static_cast<char*>(all) + StateArrayOf(options_, bucket, array).Bytes(first);
}

absl::Status StateTransfer::ExportParameters(
    const absl::Status& ready,
    absl::FunctionRef<absl::Status(int parameter, absl::Span<const float> values)> read) {
  std::vector<float> host;
  BRIGADE_ASSIGN_OR_RETURN(auto whole, AllocateWholeOnAllRanks(ready, streams_.communicator()));
  device::Stream& stream = streams_.comm();
  absl::Status status;
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    const int64_t slice = plan_.slice(bucket);
    float* const mine = static_cast<float*>(whole.data()) + streams_.rank() * slice;
    const absl::Status got = ReadMaster(static_cast<int>(b), mine);
    // Disks fail on one rank alone.
    BRIGADE_RETURN_IF_ERROR(
        file_ == nullptr ? got : collectives::AgreeOnStatus(got, streams_.communicator()));
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

absl::Status StateTransfer::Load(const absl::Status& ready, const kernels::StepState& step,
                                 int64_t chunk_bytes, StateReader read) {
  absl::Status mine = ready;
  if (mine.ok() && chunk_bytes < 1) {
    mine = absl::InvalidArgumentError(absl::StrCat("chunk_bytes is ", chunk_bytes));
  }
  if (mine.ok()) mine = update_.controller().CheckState(step);
  int64_t largest = 0;
  for (const Bucket& bucket : plan_.buckets()) {
    const optim::MomentArray of = StateArrayOf(options_, bucket, 0);
    largest = std::max(largest, of.Bytes(plan_.slice(bucket)));
  }
  constexpr int64_t kAlignment = 256;
  const int64_t whole_units = std::max<int64_t>(1, chunk_bytes / kAlignment) * kAlignment;
  absl::StatusOr<Chunks> chunks = Chunks::Create(std::min(whole_units, largest), streams_);
  if (mine.ok()) mine = chunks.status();
  if (mine.ok() && !chunks->copies()) mine = AwaitState();
  // Before the host writes weights that the last step may still copy.
  if (mine.ok() && file_ != nullptr) mine = streams_.Synchronize();
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(mine, streams_.world()));
  BRIGADE_RETURN_IF_ERROR(AgreeOnStep(step, streams_.world()));
  const int buckets = static_cast<int>(plan_.buckets().size());
  for (int b = 0; b < buckets; ++b) {
    // After an error of its own this rank takes part in the gathers that remain.
    if (mine.ok()) {
      if (IsInFile(plan_.bucket(b))) mine = FillSlices(b, read, chunks->bytes());
      if (mine.ok()) mine = WriteSlices(b, read, *chunks);
    }
    const absl::Status shared = ShareBucket(b);
    mine.Update(shared);
    // Of this group; others of the world wait for it below.
    if (!shared.ok()) break;
  }
  mine.Update(streams_.Synchronize());
  if (mine.ok() && file_ != nullptr) mine = file_->FinishFilling(step);
  BRIGADE_RETURN_IF_ERROR(collectives::AgreeOnStatus(mine, streams_.world()));
  for (int b = 0; b < buckets; ++b) BRIGADE_RETURN_IF_ERROR(parameters_.MarkWritten(b));
  return streams_.Synchronize();
}

// The host may write what this rank owns: all has ended that was enqueued before and touches it.
// The race checker sees a write.
absl::Status StateTransfer::AwaitState() {
  for (size_t b = 0; b < plan_.buckets().size(); ++b) {
    const Bucket& bucket = plan_.buckets()[b];
    for (int array = 0; array < ArraysOf(bucket); ++array) {
      const int64_t bytes = StateArrayOf(options_, bucket, array).Bytes(plan_.slice(bucket));
      if (IsInFile(bucket, array) || bytes == 0) continue;
      void* const state = OwnState(static_cast<int>(b), array);
      BRIGADE_RETURN_IF_ERROR(
          streams_.comm().Enqueue({"state may be written", {device::Writes(state, bytes)}},
                                  [](device::ThreadPool&) { return absl::OkStatus(); }));
    }
  }
  return streams_.Synchronize();
}

// Fills this rank's slices of the bucket.
absl::Status StateTransfer::WriteSlices(int index, StateReader read, Chunks& chunks) {
  const Bucket& bucket = plan_.bucket(index);
  for (int array = 0; array < ArraysOf(bucket); ++array) {
    if (IsInFile(bucket, array)) continue;
    const optim::MomentArray of = StateArrayOf(options_, bucket, array);
    const int64_t slice = of.Elements(plan_.slice(bucket));
    const int64_t element_bytes = precision::SizeOf(of.dtype);
    char* const target = static_cast<char*>(OwnState(index, array));
    for (ElementRange range; range.begin < slice; range.begin += range.size) {
      range.size = std::min(chunks.bytes() / element_bytes, slice - range.begin);
      char* const to = target + range.begin * element_bytes;
      BRIGADE_ASSIGN_OR_RETURN(void* const values, chunks.Next(to));
      BRIGADE_RETURN_IF_ERROR(read(index, array, range, values));
      BRIGADE_RETURN_IF_ERROR(chunks.CopyTo(to, range.size * element_bytes));
    }
  }
  return absl::OkStatus();
}

// The same in the file: chunk by chunk, with all arrays of each. What `read` has given stays until
// two more of its calls have ended.
absl::Status StateTransfer::FillSlices(int index, StateReader read, int64_t chunk_bytes) {
  const Bucket& bucket = plan_.bucket(index);
  const FileLayout& layout = file_->layout();
  const auto fill = [&](int64_t c, int arrays) {
    const ElementRange held = layout.chunk(c).range;
    return file_->Fill(c, [&](char* memory) -> absl::Status {
      for (int array = 0; array < arrays; ++array) {
        const optim::MomentArray of = StateArrayOf(options_, bucket, array);
        const int64_t width = precision::SizeOf(of.dtype);
        const int64_t begin = of.Elements(held.begin);
        const int64_t end = begin + of.Elements(held.size);
        char* const first = memory + StateBytes(options_, bucket, 0, array, held.size);
        for (ElementRange range = {begin, 0}; range.begin < end; range.begin += range.size) {
          range.size = std::min(chunk_bytes / width, end - range.begin);
          BRIGADE_RETURN_IF_ERROR(read(index, array, range, first + (range.begin - begin) * width));
        }
      }
      if (!bucket.trainable) return absl::OkStatus();
      return update_.RoundMaster(index, held, reinterpret_cast<const float*>(memory));
    });
  };
  const int64_t weights = layout.weights_of[static_cast<size_t>(index)];
  if (!bucket.trainable) return fill(weights, 1);
  const std::pair<int64_t, int64_t>& chunks = layout.state_of[static_cast<size_t>(index)];
  const auto fill_all = [&](char*) -> absl::Status {
    for (int64_t c = chunks.first; c < chunks.second; ++c) {
      BRIGADE_RETURN_IF_ERROR(fill(c, update_.arrays()));
    }
    return absl::OkStatus();
  };
  return weights < 0 ? fill_all(nullptr) : file_->Fill(weights, fill_all);
}

// From the slices of all ranks: the other ranks' state where every rank has it, and the weights,
// whole or this rank's slice. All in place.
absl::Status StateTransfer::ShareBucket(int index) {
  const Bucket& bucket = plan_.bucket(index);
  const StageTraits& traits = options_.traits();
  const int64_t slice = plan_.slice(bucket);
  const bool shares_state = bucket.trainable && traits.whole_optimizer_state;
  if (shares_state) {
    for (int array = 0; array < update_.arrays(); ++array) {
      const optim::MomentArray of = StateArrayOf(options_, bucket, array);
      if (of.Elements(slice) == 0) continue;
      BRIGADE_RETURN_IF_ERROR(streams_.AllGather(OwnState(index, array),
                                                 update_.Array(index, array), of.Elements(slice),
                                                 of.dtype, streams_.traffic.setup));
    }
  }
  if (bucket.trainable) BRIGADE_RETURN_IF_ERROR(update_.TakeNumbers(index));
  if (bucket.trainable && errors_ != nullptr) {
    BRIGADE_RETURN_IF_ERROR(errors_->TakeShared(index));
  }
  if (bucket.trainable && update_.IsOffloaded(index)) {
    BRIGADE_RETURN_IF_ERROR(update_.WeightsFromMaster(index));
  } else if (bucket.trainable) {
    BRIGADE_RETURN_IF_ERROR(update_.RoundMasterOnDevice(index));
  }
  if (!traits.whole_parameters || shares_state) return absl::OkStatus();
  return streams_.AllGather(parameters_.Slice(index), parameters_.Whole(index), slice, bucket.dtype,
                            streams_.traffic.setup);
}

}  // namespace brigade::zero::internal
