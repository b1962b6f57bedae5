#include "brigade/recompute/stash.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "brigade/device/memory_stats.h"
#include "brigade/device/status_macros.h"
#include "brigade/recompute/chain.h"

namespace brigade::recompute {
namespace {

// Of the file: the slots that are not empty.
std::vector<int64_t> ChunksOf(absl::Span<const int64_t> slot_bytes) {
  std::vector<int64_t> chunks;
  absl::c_copy_if(slot_bytes, std::back_inserter(chunks), [](int64_t bytes) { return bytes > 0; });
  return chunks;
}

device::FileOptions ForStash(device::FileOptions file) {
  file.operations = 1;
  file.crash_safety = device::CrashSafety::kNone;
  return file;
}

// In each direction: one is filled while the other is emptied.
size_t PassagesOf(absl::Span<const int64_t> slot_bytes) {
  return std::min<size_t>(ChunksOf(slot_bytes).size(), 2);
}

// Each has room for any state.
int64_t PassageBytes(absl::Span<const int64_t> slot_bytes) {
  return slot_bytes.empty() ? 0 : AlignedBytes(*absl::c_max_element(slot_bytes));
}

}  // namespace

int64_t Stash::HostBytes(absl::Span<const int64_t> slot_bytes, const device::FileOptions* file) {
  if (file != nullptr) {
    return 2 * static_cast<int64_t>(PassagesOf(slot_bytes)) * PassageBytes(slot_bytes) +
           device::FileStoreMemoryBytes(ForStash(*file), ChunksOf(slot_bytes));
  }
  int64_t sum = 0;
  for (const int64_t bytes : slot_bytes) sum += AlignedBytes(bytes);
  return sum;
}

int64_t Stash::FileBytes(absl::Span<const int64_t> slot_bytes) {
  return device::FileStoreBytes(ChunksOf(slot_bytes));
}

absl::StatusOr<std::unique_ptr<Stash>> Stash::Create(absl::Span<const int64_t> slot_bytes,
                                                     device::Context& context,
                                                     const device::FileOptions* file) {
  std::unique_ptr<Stash> stash(new Stash(slot_bytes.size()));
  BRIGADE_ASSIGN_OR_RETURN(stash->computed_, context.CreateEvent("computed for the stash"));
  BRIGADE_ASSIGN_OR_RETURN(stash->all_written_, context.CreateEvent("all stashed"));
  BRIGADE_ASSIGN_OR_RETURN(stash->stream_, context.CreateStream("stash"));
  if (file != nullptr) {
    BRIGADE_RETURN_IF_ERROR(stash->CreateFile(slot_bytes, *file, context));
  } else {
    BRIGADE_ASSIGN_OR_RETURN(
        stash->memory_,
        context.AllocateHost(HostBytes(slot_bytes), device::Purpose::kActivations, "stash"));
  }
  char* data = stash->memory_.as<char>().data();
  int64_t chunk = 0;
  for (size_t s = 0; s < slot_bytes.size(); ++s) {
    if (slot_bytes[s] == 0) continue;
    Slot& slot = stash->slots_[s];
    slot.bytes = slot_bytes[s];
    if (file != nullptr) {
      slot.chunk = chunk++;
    } else {
      slot.data = data;
      data += AlignedBytes(slot.bytes);
    }
    BRIGADE_ASSIGN_OR_RETURN(slot.written, context.CreateEvent(absl::StrCat("stashed ", s)));
    BRIGADE_ASSIGN_OR_RETURN(slot.fetched, context.CreateEvent(absl::StrCat("restored ", s)));
  }
  BRIGADE_RETURN_IF_ERROR(stash->stream_->Record(*stash->all_written_));
  return stash;
}

absl::Status Stash::CreateFile(absl::Span<const int64_t> slot_bytes,
                               const device::FileOptions& options, device::Context& context) {
  std::vector<int> slots;
  for (size_t s = 0; s < slot_bytes.size(); ++s) {
    if (slot_bytes[s] > 0) slots.push_back(static_cast<int>(s));
  }
  const device::FileOptions file = ForStash(options);
  const std::vector<int64_t> chunks = ChunksOf(slot_bytes);
  BRIGADE_ASSIGN_OR_RETURN(
      memory_, context.AllocateHost(device::FileStoreMemoryBytes(file, chunks),
                                    device::Purpose::kActivations, "blocks of the stash's file"));
  BRIGADE_ASSIGN_OR_RETURN(
      file_, device::FileStore::Create(file, device::NewFileName("brigade_stash"), chunks,
                                       {.memory = memory_.as<char>()}));
  file_->NameChunks([slots = std::move(slots)](int64_t chunk) {
    return absl::StrCat("input of stage ", slots[static_cast<size_t>(chunk)]);
  });
  if (context.device().kind != device::DeviceKind::kCpu) {
    BRIGADE_ASSIGN_OR_RETURN(host_context_, context.CreateHostContext(/*compute_threads=*/1));
  }
  device::Context& host = host_context_ == nullptr ? context : *host_context_;
  BRIGADE_ASSIGN_OR_RETURN(file_stream_, host.CreateStream("stash's file"));
  struct Direction {
    Passages& passages;
    const char* name;
    device::Context &filler, &emptier;
    device::Stream& empties;
  };
  for (const Direction& each :
       {Direction{to_file_, "stash to the file", context, host, *file_stream_},
        Direction{from_file_, "stash from the file", host, context, *stream_}}) {
    each.passages.all.resize(PassagesOf(slot_bytes));
    for (Passage& passage : each.passages.all) {
      BRIGADE_ASSIGN_OR_RETURN(
          passage.memory,
          context.AllocateHost(PassageBytes(slot_bytes), device::Purpose::kActivations, each.name));
      BRIGADE_ASSIGN_OR_RETURN(passage.filled,
                               each.filler.CreateEvent(absl::StrCat(each.name, ", filled")));
      BRIGADE_ASSIGN_OR_RETURN(passage.emptied,
                               each.emptier.CreateEvent(absl::StrCat(each.name, ", emptied")));
      BRIGADE_RETURN_IF_ERROR(each.empties.Record(*passage.emptied));
    }
  }
  return absl::OkStatus();
}

// Behind the copy on the stash's stream.
absl::Status Stash::WriteToFile(const Slot& slot, Passage& from) {
  BRIGADE_RETURN_IF_ERROR(stream_->Record(*from.filled));
  BRIGADE_RETURN_IF_ERROR(Wait(StashWait::kOnHost, *from.filled, *file_stream_));
  BRIGADE_RETURN_IF_ERROR(file_->Write(*file_stream_, slot.chunk, from.Bytes(slot)));
  BRIGADE_RETURN_IF_ERROR(file_->Commit(*file_stream_));
  movement_.file_written += slot.bytes;
  return file_stream_->Record(*from.emptied);
}

// Before the copy on the stash's stream.
absl::Status Stash::ReadFromFile(const Slot& slot, Passage& to) {
  BRIGADE_RETURN_IF_ERROR(Wait(StashWait::kOnDevice, *to.emptied, *file_stream_));
  BRIGADE_RETURN_IF_ERROR(file_->Read(*file_stream_, slot.chunk, to.Bytes(slot)));
  movement_.file_read += slot.bytes;
  BRIGADE_RETURN_IF_ERROR(file_stream_->Record(*to.filled));
  return Wait(StashWait::kReadFromFile, *to.filled, *stream_);
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
  Passage* const passage = file_ == nullptr ? nullptr : &to_file_.Next();
  if (passage != nullptr) {
    BRIGADE_RETURN_IF_ERROR(Wait(StashWait::kWrittenToFile, *passage->emptied, *stream_));
  }
  BRIGADE_RETURN_IF_ERROR(
      stream_->Copy(passage == nullptr ? to.data : passage->memory.data(), state, to.bytes));
  movement_.to_host += to.bytes;
  BRIGADE_RETURN_IF_ERROR(stream_->Record(*to.written));
  BRIGADE_RETURN_IF_ERROR(stream_->Record(*all_written_));
  return passage == nullptr ? absl::OkStatus() : WriteToFile(to, *passage);
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
  Passage* const passage = file_ == nullptr ? nullptr : &from_file_.Next();
  if (passage != nullptr) BRIGADE_RETURN_IF_ERROR(ReadFromFile(from, *passage));
  BRIGADE_RETURN_IF_ERROR(
      stream_->Copy(state, passage == nullptr ? from.data : passage->memory.data(), from.bytes));
  movement_.from_host += from.bytes;
  if (passage != nullptr) BRIGADE_RETURN_IF_ERROR(stream_->Record(*passage->emptied));
  return stream_->Record(*from.fetched);
}

absl::Status Stash::AwaitFetch(int slot_index, device::Stream& compute) {
  Slot& of = slot(slot_index);
  return of.bytes == 0 ? absl::OkStatus() : Wait(StashWait::kRestored, *of.fetched, compute);
}

}  // namespace brigade::recompute
