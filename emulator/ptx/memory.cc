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
constexpr int64_t kPage = 4096;
// About so many bytes of freed addresses are not used again: pages that were touched stay with the
// process.
constexpr int64_t kQuarantine = int64_t{64} << 20;

// The largest alignment of a number, and what counts as a struct with padding.
constexpr uint64_t kWord = 8;
constexpr int64_t kMostStruct = 64;

int64_t RoundUp(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

// From one allocation's start to the next's.
int64_t Stride(int64_t bytes) { return RoundUp(bytes + kGap, kAlignment); }

absl::Status NoRange(int64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("emulator: no range of ", bytes, " addresses: ", std::strerror(errno)));
}

template <typename T>
absl::Status MapArray(int64_t count, int protection, int sharing, T*& array) {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  void* const mapped = mmap(nullptr, static_cast<size_t>(bytes), protection,
                            sharing | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return NoRange(bytes);
  array = static_cast<T*>(mapped);
  return absl::OkStatus();
}

template <typename T>
void Unmap(T* array, uint64_t count) {
  if (array != nullptr) munmap(array, count * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> Memory::Create(int64_t bytes, int devices) {
  if (bytes < 1 || devices < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("emulator: a memory of ", bytes, " bytes for ", devices, " devices"));
  }
  std::unique_ptr<Memory> memory(new Memory(RoundUp(bytes, kPage), devices));
  BRIGADE_RETURN_IF_ERROR(memory->Map());
  return memory;
}

absl::Status Memory::Map() {
  const auto total = static_cast<int64_t>(total_bytes());
  const auto for_host = static_cast<size_t>(bytes_);
  uint8_t* addresses = nullptr;
  BRIGADE_RETURN_IF_ERROR(MapArray(total, PROT_NONE, MAP_PRIVATE, addresses));
  base_ = reinterpret_cast<uint64_t>(addresses);
  constexpr int kUse = PROT_READ | PROT_WRITE;
  BRIGADE_RETURN_IF_ERROR(MapArray(total, kUse, MAP_SHARED, host_));
  BRIGADE_RETURN_IF_ERROR(MapArray(total, kUse, MAP_PRIVATE, state_));
  BRIGADE_RETURN_IF_ERROR(MapArray(total, kUse, MAP_PRIVATE, past_));
  // A length of 0 maps the pages of a shared mapping a second time.
  if (mremap(host_, 0, for_host, MREMAP_MAYMOVE | MREMAP_FIXED, addresses) == MAP_FAILED) {
    return NoRange(bytes_);
  }
  // A kernel's first access to each page takes a fault, of which this leaves fewer.
  madvise(past_, total_bytes() * sizeof(PastAccesses), MADV_HUGEPAGE);
  const device::MutexLock lock(mutex_);
  for (int owner = kHost; owner < devices_; ++owner) {
    // A range's first bytes are in no allocation: what is before one is reported as well.
    owners_[static_cast<size_t>(owner + 1)].next = Begin(owner) + kAlignment;
  }
  return absl::OkStatus();
}

Memory::~Memory() {
  Unmap(reinterpret_cast<uint8_t*>(base_), total_bytes());
  Unmap(host_, total_bytes());
  Unmap(state_, total_bytes());
  Unmap(past_, total_bytes());
}

uint64_t Memory::FindGap(uint64_t from, uint64_t end, uint64_t stride) const {
  auto after = live_.lower_bound(from);
  if (after != live_.begin()) {
    const Allocation& before = std::prev(after)->second;
    from = std::max(from, before.address + static_cast<uint64_t>(Stride(before.bytes)));
  }
  for (; after != live_.end() && after->first - from < stride; ++after) {
    from = after->first + static_cast<uint64_t>(Stride(after->second.bytes));
  }
  return from < end && end - from >= stride ? from : 0;
}

absl::StatusOr<uint64_t> Memory::Allocate(int64_t bytes, absl::string_view name, int owner) {
  if (bytes < 0 || owner < kHost || owner >= devices_) {
    return absl::InvalidArgumentError(
        absl::StrCat("emulator: allocation of ", bytes, " bytes for device ", owner));
  }
  const device::MutexLock lock(mutex_);
  Owner& of = owners_[static_cast<size_t>(owner + 1)];
  const uint64_t begin = Begin(owner), end = begin + static_cast<uint64_t>(bytes_);
  uint64_t address = 0;
  if (bytes <= bytes_) {
    const auto stride = static_cast<uint64_t>(Stride(bytes));
    address = FindGap(of.next, end, stride);
    if (address == 0) address = FindGap(begin + kAlignment, end, stride);
  }
  if (address == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("emulator: no ", bytes, " bytes are free for \"", name, "\""));
  }
  of.next = address + static_cast<uint64_t>(Stride(bytes));
  of.used_bytes += Stride(bytes);
  if (of.next - begin > static_cast<uint64_t>(of.used_bytes + kQuarantine))
    of.next = begin + kAlignment;
  std::fill_n(State(address), bytes,
              owner == kHost ? ByteState::kInitialized : ByteState::kUninitialized);
  live_[address] = {address, bytes, std::string(name)};
  freed_.erase(freed_.lower_bound(address),
               freed_.lower_bound(address + static_cast<uint64_t>(Stride(bytes))));
  return address;
}

void Memory::Name(uint64_t address, absl::string_view name) {
  const device::MutexLock lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return;
  std::string& whole = found->second.name;
  whole = absl::StrCat(name, " (", whole, ")");
}

absl::Status Memory::Free(uint64_t address) {
  const device::MutexLock lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("free: ", absl::StrFormat("%#x", address),
                     " is the start of no allocation: ", DescribeLocked(address)));
  }
  const Allocation& allocation = found->second;
  std::fill_n(State(address), allocation.bytes, ByteState::kNone);
  // What the host reads by a stale pointer to page-locked memory.
  std::memset(Host(address), 0xcb, static_cast<size_t>(allocation.bytes));
  owners_[static_cast<size_t>(OwnerOf(address) + 1)].used_bytes -= Stride(allocation.bytes);
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

Memory::Range Memory::Find(uint64_t address) const {
  const device::MutexLock lock(mutex_);
  const Allocation* live = Near(address, live_);
  if (live == nullptr || address - live->address > static_cast<uint64_t>(live->bytes)) return {};
  return {live->address, live->bytes, OwnerOf(address)};
}

int64_t Memory::used_bytes(int owner) const {
  const device::MutexLock lock(mutex_);
  return owners_[static_cast<size_t>(owner + 1)].used_bytes;
}

std::string Memory::Describe(uint64_t address) const {
  const device::MutexLock lock(mutex_);
  return DescribeLocked(address);
}

std::string Memory::DescribeLocked(uint64_t address) const {
  if (!Contains(address)) return absl::StrFormat("%#x, which is not on the device", address);
  const auto describe = [&](const Allocation& allocation) {
    return absl::StrCat("byte ", address - allocation.address, " of ", allocation.bytes, " of \"",
                        allocation.name, "\"");
  };
  std::string text;
  if (const Allocation* live = Near(address, live_); live != nullptr) {
    text = describe(*live);
  } else if (const Allocation* freed = Near(address, freed_); freed != nullptr) {
    text = absl::StrCat(describe(*freed), ", which has been freed");
  } else {
    text = absl::StrFormat("%#x, near no allocation", address);
  }
  if (devices_ > 1 && OwnerOf(address) >= 0) {
    absl::StrAppend(&text, ", on device ", OwnerOf(address));
  }
  return text;
}

absl::StatusOr<uint64_t> Memory::TakeSerials(uint64_t count, uint64_t end) {
  const device::MutexLock lock(mutex_);
  if (count > end - 1) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "emulator: a grid of ", count, " blocks; at most ", end - 1, " are told apart"));
  }
  while (count > end - next_serial_) {
    if (launches_ > 0) {
      launch_ended_.Wait(mutex_);
      continue;
    }
    // Pages that are given back read as zeros.
    madvise(past_, total_bytes() * sizeof(PastAccesses), MADV_DONTNEED);
    next_serial_ = 1;
  }
  ++launches_;
  const uint64_t first = next_serial_;
  next_serial_ += count;
  return first;
}

void Memory::ReturnSerials() {
  const device::MutexLock lock(mutex_);
  --launches_;
  launch_ended_.SignalAll();
}

absl::Status Memory::CheckLive(absl::string_view call, uint64_t address, int64_t bytes) const {
  const device::MutexLock lock(mutex_);
  uint64_t outside = address;
  if (const Allocation* live = Near(address, live_); live != nullptr && bytes >= 0) {
    const uint64_t end = live->address + static_cast<uint64_t>(live->bytes);
    if (address <= end) {
      if (static_cast<uint64_t>(bytes) <= end - address) return absl::OkStatus();
      outside = end;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      call, " of ", bytes, " bytes: outside of live allocations: ", DescribeLocked(outside)));
}

absl::Status Memory::CheckReach(int device, absl::string_view call, uint64_t address,
                                int64_t bytes) const {
  BRIGADE_RETURN_IF_ERROR(CheckLive(call, address, bytes));
  if (Reaches(device, address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call, " of ", bytes, " bytes by device ", device, " at ", Describe(address)));
}

absl::Status Memory::CheckWritten(absl::string_view call, uint64_t address, int64_t bytes) const {
  const ByteState* const begin = State(address);
  const ByteState* young = std::find(begin, begin + bytes, ByteState::kUninitialized);
  const auto is_padding = [&] {
    const uint64_t at = address + static_cast<uint64_t>(young - begin);
    return bytes <= kMostStruct && bytes % 4 == 0 &&
           *State(at / kWord * kWord) == ByteState::kInitialized;
  };
  while (young != begin + bytes && is_padding()) {
    young = std::find(young + 1, begin + bytes, ByteState::kUninitialized);
  }
  if (young == begin + bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      call, " of ", bytes,
      " bytes: never written: ", Describe(address + static_cast<uint64_t>(young - begin))));
}

absl::Status Memory::Read(uint64_t address, void* to, int64_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckLive("read", address, bytes));
  BRIGADE_RETURN_IF_ERROR(CheckWritten("read", address, bytes));
  std::memcpy(to, Host(address), static_cast<size_t>(bytes));
  return absl::OkStatus();
}

absl::Status Memory::Write(uint64_t address, const void* from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckLive("write", address, bytes));
  std::memcpy(Host(address), from, static_cast<size_t>(bytes));
  std::fill_n(State(address), bytes, ByteState::kInitialized);
  return absl::OkStatus();
}

absl::Status Memory::Copy(uint64_t to, uint64_t from, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckLive("read", from, bytes));
  BRIGADE_RETURN_IF_ERROR(CheckLive("write", to, bytes));
  const auto count = static_cast<size_t>(bytes);
  if (OwnerOf(to) == kHost) BRIGADE_RETURN_IF_ERROR(CheckWritten("read", from, bytes));
  std::memmove(Host(to), Host(from), count);
  std::memmove(State(to), State(from), count);
  return absl::OkStatus();
}

absl::Status Memory::CheckRead(int device, uint64_t address, int64_t bytes) const {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckReach(device, "read", address, bytes));
  return CheckWritten("read", address, bytes);
}

absl::Status Memory::CheckWrite(int device, uint64_t address, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  BRIGADE_RETURN_IF_ERROR(CheckReach(device, "write", address, bytes));
  std::fill_n(State(address), bytes, ByteState::kInitialized);
  return absl::OkStatus();
}

}  // namespace brigade::emulator
