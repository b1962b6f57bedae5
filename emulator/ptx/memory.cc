#include "brigade/emulator/ptx/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/device/status_macros.h"

namespace brigade::emulator {
namespace {

constexpr int64_t kAlignment = 512;
constexpr int64_t kGap = 256;

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// From one allocation's start to the next's.
int64_t Stride(int64_t bytes) { return RoundUp(bytes + kGap, kAlignment); }

template <typename T>
absl::Status MapArray(int64_t count, int protection, T*& array) {
  void* const mapped = mmap(nullptr, static_cast<size_t>(count) * sizeof(T), protection,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "emulator: no range of ", count, " addresses for a device: ", std::strerror(errno)));
  }
  array = static_cast<T*>(mapped);
  return absl::OkStatus();
}

template <typename T>
void Unmap(T* array, int64_t count) {
  if (array != nullptr) munmap(array, static_cast<size_t>(count) * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> Memory::Create(int64_t bytes) {
  if (bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("emulator: a memory of ", bytes, " bytes"));
  }
  std::unique_ptr<Memory> memory(new Memory(RoundUp(bytes, kAlignment)));
  BRIGADE_RETURN_IF_ERROR(memory->Map());
  return memory;
}

absl::Status Memory::Map() {
  uint8_t* device = nullptr;
  BRIGADE_RETURN_IF_ERROR(MapArray(bytes_, PROT_NONE, device));
  base_ = reinterpret_cast<uint64_t>(device);
  constexpr int kUse = PROT_READ | PROT_WRITE;
  BRIGADE_RETURN_IF_ERROR(MapArray(bytes_, kUse, host_));
  BRIGADE_RETURN_IF_ERROR(MapArray(bytes_, kUse, state_));
  BRIGADE_RETURN_IF_ERROR(MapArray(bytes_, kUse, past_));
  // A kernel's first access to each page takes a fault, of which this leaves fewer.
  madvise(past_, static_cast<size_t>(bytes_) * sizeof(PastAccesses), MADV_HUGEPAGE);
  const device::MutexLock lock(mutex_);
  // The range's first bytes are in no allocation: what is before one is reported as well.
  next_ = base_ + kAlignment;
  return absl::OkStatus();
}

Memory::~Memory() {
  Unmap(reinterpret_cast<uint8_t*>(base_), bytes_);
  Unmap(host_, bytes_);
  Unmap(state_, bytes_);
  Unmap(past_, bytes_);
}

uint64_t Memory::FindGap(uint64_t from, uint64_t stride) const {
  auto after = live_.lower_bound(from);
  if (after != live_.begin()) {
    const Allocation& before = std::prev(after)->second;
    from = std::max(from, before.address + static_cast<uint64_t>(Stride(before.bytes)));
  }
  for (; after != live_.end() && after->first - from < stride; ++after) {
    from = after->first + static_cast<uint64_t>(Stride(after->second.bytes));
  }
  const uint64_t end = base_ + static_cast<uint64_t>(bytes_);
  return from < end && end - from >= stride ? from : 0;
}

absl::StatusOr<uint64_t> Memory::Allocate(int64_t bytes, absl::string_view name) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("emulator: allocation of ", bytes, " bytes"));
  }
  const device::MutexLock lock(mutex_);
  uint64_t address = 0;
  if (bytes <= bytes_) {
    const auto stride = static_cast<uint64_t>(Stride(bytes));
    // Freed addresses are used again late.
    address = FindGap(next_, stride);
    if (address == 0) address = FindGap(base_ + kAlignment, stride);
  }
  if (address == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("emulator: no ", bytes, " bytes are free for \"", name, "\""));
  }
  next_ = address + static_cast<uint64_t>(Stride(bytes));
  std::fill_n(State(address), bytes, ByteState::kUninitialized);
  live_[address] = {address, bytes, std::string(name)};
  freed_.erase(freed_.lower_bound(address), freed_.lower_bound(next_));
  return address;
}

absl::Status Memory::Free(uint64_t address) {
  const device::MutexLock lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) {
    const Allocation* freed = Near(address, freed_);
    return absl::InvalidArgumentError(
        absl::StrCat("free: ", absl::StrFormat("%#x", address), " is the start of no allocation",
                     freed != nullptr && freed->address == address
                         ? absl::StrCat("; \"", freed->name, "\" was freed before")
                         : ""));
  }
  const Allocation& allocation = found->second;
  std::fill_n(State(address), allocation.bytes, ByteState::kNone);
  // What a stale pointer of the host's stand-ins reads.
  std::memset(Host(address), 0xcb, static_cast<size_t>(allocation.bytes));
  freed_[address] = allocation;
  live_.erase(found);
  return absl::OkStatus();
}

const Memory::Allocation* Memory::Near(uint64_t address, const Allocations& in) {
  auto after = in.upper_bound(address);
  if (after == in.begin()) return nullptr;
  const Allocation& before = std::prev(after)->second;
  const uint64_t into = address - before.address;
  return into < static_cast<uint64_t>(Stride(before.bytes)) ? &before : nullptr;
}

bool Memory::Holds(uint64_t address, int64_t bytes) const {
  const device::MutexLock lock(mutex_);
  const Allocation* allocation = Near(address, live_);
  if (allocation == nullptr || bytes < 0) return false;
  const uint64_t into = address - allocation->address;
  return into <= static_cast<uint64_t>(allocation->bytes) &&
         static_cast<uint64_t>(bytes) <= static_cast<uint64_t>(allocation->bytes) - into;
}

std::string Memory::Describe(uint64_t address) const {
  const device::MutexLock lock(mutex_);
  const auto describe = [&](const Allocation& allocation) {
    return absl::StrCat("byte ", address - allocation.address, " of ", allocation.bytes, " of \"",
                        allocation.name, "\"");
  };
  if (const Allocation* live = Near(address, live_); live != nullptr) return describe(*live);
  if (const Allocation* freed = Near(address, freed_); freed != nullptr) {
    return absl::StrCat(describe(*freed), ", which has been freed");
  }
  if (Contains(address)) {
    return absl::StrFormat("%#x, near no allocation", address);
  }
  return absl::StrFormat("%#x, which is not on the device", address);
}

absl::StatusOr<uint64_t> Memory::TakeSerials(uint64_t count, uint64_t end) {
  const device::MutexLock lock(mutex_);
  if (count > end - next_serial_) {
    if (count > end - 1) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "emulator: a grid of ", count, " blocks; at most ", end - 1, " are told apart"));
    }
    // Pages that are given back read as zeros.
    madvise(past_, static_cast<size_t>(bytes_) * sizeof(PastAccesses), MADV_DONTNEED);
    next_serial_ = 1;
  }
  const uint64_t first = next_serial_;
  next_serial_ += count;
  return first;
}

absl::Status Memory::Check(absl::string_view call, uint64_t address, int64_t bytes,
                           ByteState least) const {
  for (int64_t i = 0; i < bytes; ++i) {
    const uint64_t at = address + static_cast<uint64_t>(i);
    if (Contains(at) && *State(at) >= least) continue;
    const bool is_live = Contains(at) && *State(at) != ByteState::kNone;
    return absl::InvalidArgumentError(absl::StrCat(
        call, " of ", bytes,
        " bytes: ", is_live ? "never written: " : "outside of live allocations: ", Describe(at)));
  }
  return absl::OkStatus();
}

absl::Status Memory::Read(uint64_t address, void* to, int64_t bytes) const {
  BRIGADE_RETURN_IF_ERROR(Check("read", address, bytes, ByteState::kInitialized));
  if (bytes > 0) std::memcpy(to, Host(address), static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status Memory::Write(uint64_t address, const void* from, int64_t bytes) {
  BRIGADE_RETURN_IF_ERROR(Check("write", address, bytes, ByteState::kUninitialized));
  if (bytes == 0) return absl::OkStatus();
  std::memcpy(Host(address), from, static_cast<size_t>(bytes));
  std::fill_n(State(address), bytes, ByteState::kInitialized);
  return absl::OkStatus();
}

}  // namespace brigade::emulator
