#include "brigade/checkpoint/staging.h"

#include <algorithm>
#include <utility>

#include "brigade/device/status_macros.h"
#include "brigade/optim/step_controller.h"
#include "brigade/precision/dtype.h"

namespace brigade::checkpoint {

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(std::vector<Piece> pieces,
                                                         const Layout& layout, int64_t ring_bytes,
                                                         int64_t chunk_bytes,
                                                         zero::ZeroOptimizer& zero,
                                                         device::Context& context) {
  std::unique_ptr<Staging> self(new Staging(std::move(pieces), layout, zero));
  self->CutIntoChunks(chunk_bytes);
  const int64_t slots =
      std::clamp<int64_t>(ring_bytes / chunk_bytes, std::min(2, self->chunks()), self->chunks());
  BRIGADE_ASSIGN_OR_RETURN(
      self->ring_, context.AllocateHost(slots * self->slot_bytes_, device::Purpose::kScratch,
                                        "ring of a checkpoint"));
  BRIGADE_ASSIGN_OR_RETURN(
      self->state_, context.AllocateHost(sizeof(kernels::StepState), device::Purpose::kScratch,
                                         "step state of a checkpoint"));
  BRIGADE_ASSIGN_OR_RETURN(self->state_arrived_, context.CreateEvent("step state arrived"));
  for (int64_t slot = 0; slot < slots; ++slot) {
    BRIGADE_ASSIGN_OR_RETURN(auto event, context.CreateEvent("chunk of a checkpoint arrived"));
    self->arrived_.push_back(std::move(event));
  }
  BRIGADE_ASSIGN_OR_RETURN(self->stream_, context.CreateStream("checkpoint"));
  return self;
}

Staging::~Staging() { End().IgnoreError(); }

void Staging::CutIntoChunks(int64_t chunk_bytes) {
  int64_t at = chunk_bytes;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(pieces_[p].tensor)];
    const int64_t element = precision::SizeOf(tensor.dtype);
    for (int64_t offset = 0; offset < pieces_[p].bytes;) {
      if (at + element > chunk_bytes) {
        chunks_.push_back({parts_.size(), parts_.size()});
        at = 0;
      }
      const int64_t room = std::max<int64_t>(1, (chunk_bytes - at) / element) * element;
      const int64_t bytes = std::min(pieces_[p].bytes - offset, room);
      parts_.push_back({static_cast<int>(p), offset, at, bytes});
      chunks_.back().last = parts_.size();
      offset += bytes;
      at += bytes;
      slot_bytes_ = std::max(slot_bytes_, at);
    }
  }
}

char* Staging::SlotOf(int index) {
  return static_cast<char*>(ring_.data()) +
         static_cast<int64_t>(static_cast<size_t>(index) % arrived_.size()) * slot_bytes_;
}

absl::Status Staging::Begin() {
  next_ = 0;
  // After a save that failed.
  if (!stream_->status().ok()) stream_->Reset().IgnoreError();
  const absl::Status lent = zero_.LendState(*stream_);
  borrowed_ = lent.ok();
  // No error of a stream.
  const bool is_refused = absl::IsFailedPrecondition(lent) && stream_->status().ok() &&
                          zero_.step_stream().status().ok();
  if (is_refused) return lent;
  enqueued_ = lent.ok() ? EnqueueFirst() : lent;
  return absl::OkStatus();
}

absl::Status Staging::EnqueueFirst() {
  BRIGADE_RETURN_IF_ERROR(
      stream_->Copy(state_.data(), zero_.controller().state(), sizeof(kernels::StepState)));
  BRIGADE_RETURN_IF_ERROR(stream_->Record(*state_arrived_));
  while (next_ < static_cast<int>(arrived_.size())) BRIGADE_RETURN_IF_ERROR(EnqueueNext());
  return next_ == chunks() ? GiveBack() : absl::OkStatus();
}

absl::Status Staging::EnqueueNext() {
  const Cut& cut = chunks_[static_cast<size_t>(next_)];
  char* const slot = SlotOf(next_);
  const auto source_of = [&](size_t p) -> Source {
    const Part& part = parts_[p];
    const Piece& piece = pieces_[static_cast<size_t>(part.piece)];
    const Tensor& tensor = layout_.tensors()[static_cast<size_t>(piece.tensor)];
    const int64_t width = precision::SizeOf(tensor.dtype);
    return {
        piece.bucket, tensor.array, {piece.slice.begin + part.offset / width, part.bytes / width}};
  };
  for (size_t p = cut.first; p < cut.last;) {
    // Of tensors that are cut in many runs, those that follow each other on the rank at once.
    Source source = source_of(p);
    char* const to = slot + parts_[p].at;
    for (++p; p < cut.last; ++p) {
      const Source next = source_of(p);
      if (next.bucket != source.bucket || next.array != source.array ||
          next.range.begin != source.range.begin + source.range.size) {
        break;
      }
      source.range.size += next.range.size;
    }
    BRIGADE_RETURN_IF_ERROR(
        zero_.CopyState(source.bucket, source.array, source.range, to, *stream_));
  }
  BRIGADE_RETURN_IF_ERROR(stream_->Record(*arrived_[static_cast<size_t>(next_) % arrived_.size()]));
  ++next_;
  return absl::OkStatus();
}

absl::Status Staging::GiveBack() {
  if (!std::exchange(borrowed_, false)) return absl::OkStatus();
  return zero_.ReturnState();
}

absl::StatusOr<kernels::StepState> Staging::TakeState() {
  BRIGADE_RETURN_IF_ERROR(enqueued_);
  BRIGADE_RETURN_IF_ERROR(state_arrived_->Synchronize());
  return state_.as<kernels::StepState>()[0];
}

absl::StatusOr<Staging::Chunk> Staging::Take(int index) {
  BRIGADE_RETURN_IF_ERROR(arrived_[static_cast<size_t>(index) % arrived_.size()]->Synchronize());
  const Cut& cut = chunks_[static_cast<size_t>(index)];
  return Chunk{absl::MakeConstSpan(parts_).subspan(cut.first, cut.last - cut.first), SlotOf(index)};
}

absl::Status Staging::Release(int index) {
  if (next_ == chunks() || next_ != index + static_cast<int>(arrived_.size())) {
    return absl::OkStatus();
  }
  BRIGADE_RETURN_IF_ERROR(EnqueueNext());
  return next_ == chunks() ? GiveBack() : absl::OkStatus();
}

absl::Status Staging::End() {
  absl::Status status = GiveBack();
  if (stream_ != nullptr) status.Update(stream_->Synchronize());
  return status;
}

}  // namespace brigade::checkpoint
