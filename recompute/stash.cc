#include "brigade/recompute/stash.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/status_macros.h"

namespace brigade::recompute {
namespace {

// Where the next slot may begin.
int64_t RoundUp(int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

int64_t Stash::HostBytes(absl::Span<const int64_t> slot_bytes) {
  int64_t sum = 0;
  for (const int64_t bytes : slot_bytes) sum += RoundUp(bytes);
  return sum;
}

absl::StatusOr<std::unique_ptr<Stash>> Stash::Create(absl::Span<const int64_t> slot_bytes,
                                                     device::Context& context) {
  std::unique_ptr<Stash> stash(new Stash(slot_bytes.size()));
  BRIGADE_ASSIGN_OR_RETURN(
      stash->memory_,
      context.AllocateHost(HostBytes(slot_bytes), device::Purpose::kActivations, "stash"));
  BRIGADE_ASSIGN_OR_RETURN(stash->computed_, context.CreateEvent("computed for the stash"));
  BRIGADE_ASSIGN_OR_RETURN(stash->all_written_, context.CreateEvent("all stashed"));
  BRIGADE_ASSIGN_OR_RETURN(stash->stream_, context.CreateStream("stash"));
  char* data = stash->memory_.as<char>().data();
  for (size_t s = 0; s < slot_bytes.size(); ++s) {
    if (slot_bytes[s] == 0) continue;
    Slot& slot = stash->slots_[s];
    slot.data = data;
    slot.bytes = slot_bytes[s];
    data += RoundUp(slot.bytes);
    BRIGADE_ASSIGN_OR_RETURN(slot.written, context.CreateEvent(absl::StrCat("stashed ", s)));
    BRIGADE_ASSIGN_OR_RETURN(slot.fetched, context.CreateEvent(absl::StrCat("restored ", s)));
  }
  BRIGADE_RETURN_IF_ERROR(stash->stream_->Record(*stash->all_written_));
  return stash;
}

absl::Status Stash::Wait(StashWait point, device::Event& event, device::Stream& waiter) {
  if (omitted_ == point) return absl::OkStatus();
  return waiter.Wait(event);
}

absl::Status Stash::Begin(device::Stream& compute) {
  return Wait(StashWait::kStashed, *all_written_, compute);
}

absl::Status Stash::Write(int slot_index, const void* state, device::Stream& compute) {
  Slot& to = slot(slot_index);
  if (to.bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(compute.Record(*computed_));
  BRIGADE_RETURN_IF_ERROR(Wait(StashWait::kStateWritten, *computed_, *stream_));
  BRIGADE_RETURN_IF_ERROR(stream_->Copy(to.data, state, to.bytes));
  movement_.to_host += to.bytes;
  BRIGADE_RETURN_IF_ERROR(stream_->Record(*to.written));
  return stream_->Record(*all_written_);
}

absl::Status Stash::AwaitWrite(int slot_index, device::Stream& compute) {
  Slot& of = slot(slot_index);
  return of.bytes == 0 ? absl::OkStatus() : Wait(StashWait::kStashed, *of.written, compute);
}

absl::Status Stash::Fetch(int slot_index, void* state, device::Stream& compute) {
  Slot& from = slot(slot_index);
  if (from.bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(compute.Record(*computed_));
  BRIGADE_RETURN_IF_ERROR(Wait(StashWait::kStashFree, *computed_, *stream_));
  BRIGADE_RETURN_IF_ERROR(stream_->Copy(state, from.data, from.bytes));
  movement_.from_host += from.bytes;
  return stream_->Record(*from.fetched);
}

absl::Status Stash::AwaitFetch(int slot_index, device::Stream& compute) {
  Slot& of = slot(slot_index);
  return of.bytes == 0 ? absl::OkStatus() : Wait(StashWait::kRestored, *of.fetched, compute);
}

}  // namespace brigade::recompute
