#include "brigade/zero/internal/rank_file.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/context.h"
#include "brigade/device/status_macros.h"
#include "brigade/precision/dtype.h"
#include "brigade/zero/plan/layout.h"

namespace brigade::zero::internal {

absl::StatusOr<std::unique_ptr<RankFile>> RankFile::Create(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           StepStreams& streams) {
  std::unique_ptr<RankFile> self(new RankFile(plan, options, streams));
  const std::vector<int64_t> sizes = self->layout_.Sizes();
  const device::FileOptions file = FileOptionsOf(options);
  BRIGADE_ASSIGN_OR_RETURN(
      self->blocks_,
      streams.context().AllocateHost(device::FileStoreMemoryBytes(file, sizes),
                                     device::Purpose::kScratch, "blocks of the file in flight"));
  const std::string name = device::NewFileName(absl::StrCat("brigade_rank_", streams.rank()));
  BRIGADE_ASSIGN_OR_RETURN(
      self->store_,
      device::FileStore::Create(file, name, sizes, {.memory = self->blocks_.as<char>()}));
  self->store_->NameChunks(
      [layout = self->layout_](int64_t chunk) { return ToString(layout.chunk(chunk)); });
  device::Context& host = streams.host_context();
  BRIGADE_ASSIGN_OR_RETURN(
      self->states_, self->CreateSlots(/*is_state=*/true, "chunk of the optimizer state", host));
  BRIGADE_ASSIGN_OR_RETURN(self->weights_,
                           self->CreateSlots(/*is_state=*/false, "weights to the file", host));
  BRIGADE_ASSIGN_OR_RETURN(
      self->raised_,
      self->CreateSlots(/*is_state=*/false, "weights from the file", streams.context()));
  BRIGADE_ASSIGN_OR_RETURN(self->committed_, host.CreateEvent("file committed"));
  BRIGADE_ASSIGN_OR_RETURN(self->copied_, host.CreateEvent("state copied from the file"));
  BRIGADE_ASSIGN_OR_RETURN(self->asked_, streams.context().CreateEvent("state asked for"));
  BRIGADE_ASSIGN_OR_RETURN(
      self->state_, streams.context().AllocateHost(sizeof(kernels::StepState),
                                                   device::Purpose::kScratch, "committed step"));
  BRIGADE_RETURN_IF_ERROR(self->Reset());
  BRIGADE_RETURN_IF_ERROR(self->WriteZeros());
  return self;
}

absl::StatusOr<std::vector<RankFile::Slot>> RankFile::CreateSlots(bool is_state, const char* name,
                                                                  device::Context& freer) {
  std::vector<Slot> slots(static_cast<size_t>(layout_.Buffers(is_state, options_)));
  const int64_t bytes = layout_.LargestBytes(is_state);
  const auto purpose = is_state ? device::Purpose::kOptimizerState : device::Purpose::kParameters;
  device::Context& host = streams_.host_context();
  for (Slot& slot : slots) {
    BRIGADE_ASSIGN_OR_RETURN(slot.memory, streams_.context().AllocateHost(bytes, purpose, name));
    BRIGADE_ASSIGN_OR_RETURN(slot.read, host.CreateEvent(absl::StrCat(name, " read")));
    BRIGADE_ASSIGN_OR_RETURN(slot.updated, host.CreateEvent(absl::StrCat(name, " updated")));
    BRIGADE_ASSIGN_OR_RETURN(slot.free, freer.CreateEvent(absl::StrCat(name, " free")));
  }
  return slots;
}

absl::Status RankFile::WriteZeros() {
  for (int64_t c = 0; c < store_->chunks(); ++c) {
    BRIGADE_RETURN_IF_ERROR(Fill(c, [&](char* memory) {
      std::memset(memory, 0, static_cast<size_t>(store_->chunk_bytes(c)));
      return absl::OkStatus();
    }));
  }
  return FinishFilling(kernels::InitialStepState(options_.loss_scaler.ToKernelOptions()));
}

RankFile::Slot& RankFile::OutOf(int64_t chunk) {
  const int64_t before = layout_.chunk(chunk).is_state ? 0 : layout_.state_chunks;
  std::vector<Slot>& slots = before == 0 ? states_ : weights_;
  return slots[static_cast<size_t>(chunk - before) % slots.size()];
}

absl::Span<char> RankFile::BytesOf(Slot& slot, int64_t chunk) const {
  return {slot.memory.as<char>().data(), static_cast<size_t>(store_->chunk_bytes(chunk))};
}

absl::Status RankFile::BeginStep() { return AwaitCommit(streams_.from_file()); }

absl::Status RankFile::ReadState(int64_t chunk, const kernels::StepState* decision) {
  Slot& slot = OutOf(chunk);
  device::Stream& from = streams_.from_file();
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kChunkFree, *slot.free, from));
  // Behind the first chunks of the step comes what is ordered behind their updates, and so behind
  // the decision.
  const bool is_early = chunk < static_cast<int64_t>(states_.size());
  BRIGADE_RETURN_IF_ERROR(
      store_->Read(from, chunk, BytesOf(slot, chunk), is_early ? nullptr : &decision->skip));
  streams_.movement.file_read += store_->chunk_bytes(chunk);
  BRIGADE_RETURN_IF_ERROR(from.Record(*slot.read));
  return streams_.Wait(WaitPoint::kChunkRead, *slot.read, streams_.host());
}

absl::Status RankFile::AwaitMemory(int64_t chunk) {
  return streams_.Wait(WaitPoint::kHostWeightsFree, *OutOf(chunk).free, streams_.host());
}

absl::Status RankFile::Write(int64_t chunk, const kernels::StepState* decision) {
  Slot& slot = OutOf(chunk);
  device::Stream& to = streams_.to_file();
  BRIGADE_RETURN_IF_ERROR(streams_.host().Record(*slot.updated));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kChunkUpdated, *slot.updated, to));
  BRIGADE_RETURN_IF_ERROR(store_->Write(to, chunk, BytesOf(slot, chunk), &decision->skip));
  streams_.movement.file_written += store_->chunk_bytes(chunk);
  return to.Record(*slot.free);
}

absl::Status RankFile::Commit(const kernels::StepState* decision) {
  device::Stream& to = streams_.to_file();
  BRIGADE_RETURN_IF_ERROR(store_->Commit(to, &decision->skip));
  BRIGADE_RETURN_IF_ERROR(to.Copy(state_.data(), decision, sizeof(*decision)));
  return to.Record(*committed_);
}

absl::Status RankFile::RaiseWeights(int bucket, void* target) {
  const int64_t chunk = layout_.weights_of[static_cast<size_t>(bucket)];
  Slot& slot = raised_[raises_++ % raised_.size()];
  device::Stream& from = streams_.weights_from_file();
  device::Stream& up = streams_.up();
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kChunkFree, *slot.free, from));
  BRIGADE_RETURN_IF_ERROR(AwaitCommit(from));
  BRIGADE_RETURN_IF_ERROR(store_->Read(from, chunk, BytesOf(slot, chunk)));
  streams_.movement.file_read += store_->chunk_bytes(chunk);
  BRIGADE_RETURN_IF_ERROR(from.Record(*slot.read));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kChunkRead, *slot.read, up));
  BRIGADE_RETURN_IF_ERROR(up.Copy(target, slot.memory.data(), store_->chunk_bytes(chunk)));
  return up.Record(*slot.free);
}

absl::Status RankFile::Fill(int64_t chunk, absl::FunctionRef<absl::Status(char* memory)> fill) {
  Slot& slot = OutOf(chunk);
  device::Stream& to = streams_.to_file();
  BRIGADE_RETURN_IF_ERROR(slot.free->Synchronize());
  BRIGADE_RETURN_IF_ERROR(fill(slot.memory.as<char>().data()));
  BRIGADE_RETURN_IF_ERROR(store_->Write(to, chunk, BytesOf(slot, chunk)));
  return to.Record(*slot.free);
}

absl::Status RankFile::FinishFilling(const kernels::StepState& state) {
  device::Stream& to = streams_.to_file();
  BRIGADE_RETURN_IF_ERROR(store_->Commit(to));
  BRIGADE_RETURN_IF_ERROR(to.Record(*committed_));
  BRIGADE_RETURN_IF_ERROR(to.Synchronize());
  state_.as<kernels::StepState>()[0] = state;
  return absl::OkStatus();
}

absl::Status RankFile::Copy(int bucket, int array, ElementRange range, void* to,
                            device::Stream& stream) {
  device::Stream& from = streams_.copies_from_file();
  const device::MutexLock lock(copy_mutex_);
  // After an error of an earlier reader.
  if (!from.status().ok()) from.Reset().IgnoreError();
  BRIGADE_RETURN_IF_ERROR(stream.Record(*asked_));
  BRIGADE_RETURN_IF_ERROR(streams_.Wait(WaitPoint::kHostAtRest, *asked_, from));
  BRIGADE_RETURN_IF_ERROR(EnqueueReads(bucket, array, range, to));
  BRIGADE_RETURN_IF_ERROR(from.Record(*copied_));
  return streams_.Wait(WaitPoint::kStateStaged, *copied_, stream);
}

absl::Status RankFile::CopyNow(int bucket, int array, void* to) {
  BRIGADE_RETURN_IF_ERROR(EnqueueReads(bucket, array, {0, plan_.slice(plan_.bucket(bucket))}, to));
  return streams_.copies_from_file().Synchronize();
}

absl::Status RankFile::EnqueueReads(int bucket, int array, ElementRange range, void* to) {
  const auto at = static_cast<size_t>(bucket);
  const bool is_state = plan_.bucket(bucket).trainable;
  const auto [first, last] = is_state
                                 ? layout_.state_of[at]
                                 : std::pair(layout_.weights_of[at], layout_.weights_of[at] + 1);
  const optim::MomentArray of = StateArrayOf(options_, plan_.bucket(bucket), array);
  const int64_t element = precision::SizeOf(of.dtype);
  const int64_t end = range.begin + range.size;
  for (int64_t c = first; c < last; ++c) {
    const ElementRange& chunk = layout_.chunk(c).range;
    // In elements of the array.
    const ElementRange held = {of.Elements(chunk.begin), of.Elements(chunk.size)};
    const int64_t begin = std::max(range.begin, held.begin);
    const int64_t size = std::min(end, held.begin + held.size) - begin;
    if (size <= 0) continue;
    const int64_t offset =
        (is_state ? StateBytes(options_, plan_.bucket(bucket), 0, array, chunk.size) : 0) +
        (begin - held.begin) * element;
    char* const memory = static_cast<char*>(to) + (begin - range.begin) * element;
    BRIGADE_RETURN_IF_ERROR(
        store_->ReadPart(streams_.copies_from_file(), c, offset,
                         absl::MakeSpan(memory, static_cast<size_t>(size * element))));
  }
  return absl::OkStatus();
}

absl::Status RankFile::Reset() {
  device::Stream& to = streams_.to_file();
  for (std::vector<Slot>* const slots : {&states_, &weights_}) {
    for (Slot& slot : *slots) BRIGADE_RETURN_IF_ERROR(to.Record(*slot.free));
  }
  for (Slot& slot : raised_) BRIGADE_RETURN_IF_ERROR(streams_.up().Record(*slot.free));
  BRIGADE_RETURN_IF_ERROR(store_->Abandon(to));
  return to.Record(*committed_);
}

}  // namespace brigade::zero::internal
