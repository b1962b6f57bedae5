#ifndef BRIGADE_EMULATOR_PTX_MEMORY_H_
#define BRIGADE_EMULATOR_PTX_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::emulator {

// What is known of a byte.
enum class ByteState : uint8_t {
  // Of no allocation, or of one that has been freed.
  kNone = 0,
  // Allocated and never written.
  kUninitialized,
  kInitialized,
  // In shared memory: a copy of cp.async has begun to write it.
  kInFlight,
};

// The last accesses to a byte, as AccessId of block.h; 0: none.
struct PastAccesses {
  uint64_t write = 0;
  uint64_t read = 0;
};

// The memory of one or several devices, whose addresses the host cannot follow, and page-locked
// memory, which it can; and what is known of each byte.
//
// Layout       Each owner has a range of addresses of its own, all of one size. Allocations start
//              at multiples of 512 and are at least 256 bytes apart, so that an access of 16 bytes
//              that leaves one meets a byte that is in none.
// Threads      Allocate, Free, Name and Describe at any time; the others as for plain memory.
class Memory {
 public:
  // Owner of page-locked memory; the owners from 0 on are devices.
  static constexpr int kHost = -1;

  // Takes `bytes` of address space for each of `devices` and for the host. Memory is taken from the
  // system as it is used: a byte for each that is allocated, another when it is written, and 16
  // when a kernel accesses it. ResourceExhausted if the system gives no such range.
  static absl::StatusOr<std::unique_ptr<Memory>> Create(int64_t bytes, int devices = 1);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns an address that was no other allocation's for a long time. `name` is for
  // reports. What the host writes is not seen: its bytes count as written from the beginning.
  // ResourceExhausted if it does not fit.
  absl::StatusOr<uint64_t> Allocate(int64_t bytes, absl::string_view name, int owner = 0);

  // Puts a name before that of the live allocation that starts there, if one does.
  void Name(uint64_t address, absl::string_view name);

  // InvalidArgument for what is not the start of a live allocation; names what is there.
  absl::Status Free(uint64_t address);

  // Copies from and to the host. InvalidArgument if a byte is outside of live allocations,
  // FailedPrecondition if one that the host is to read was never written; nothing is copied then.
  // In what is no larger than a struct the rest of a word may be padding.
  absl::Status Read(uint64_t address, void* to, int64_t bytes) const;
  absl::Status Write(uint64_t address, const void* from, int64_t bytes);
  // Copies within the memory; what was never written stays so. Errors as above.
  absl::Status Copy(uint64_t to, uint64_t from, int64_t bytes);

  // For host code that stands in for a kernel: InvalidArgument, naming what is there, if the bytes
  // are not in one live allocation of the device or of page-locked memory; FailedPrecondition if
  // one of those to be read was never written. Those to be written count as written from now on.
  absl::Status CheckRead(int device, uint64_t address, int64_t bytes) const;
  absl::Status CheckWrite(int device, uint64_t address, int64_t bytes);

  // The live allocation that the address is in or at whose end it is; bytes < 0 if there is none.
  struct Range {
    uint64_t address = 0;
    int64_t bytes = -1;
    int owner = 0;
  };
  Range Find(uint64_t address) const;
  // Of all live allocations of an owner, with what keeps them apart, and of what it has.
  int64_t used_bytes(int owner) const;
  int64_t bytes() const { return bytes_; }

  // "byte 1036 of 1024 of \"weights\"", or what else is at the address or near it.
  std::string Describe(uint64_t address) const;

  // The first of `count` numbers for the blocks of a launch, below `end`, that no past access has,
  // until ReturnSerials is called at the launch's end. When they have run out and no launch has
  // any, past accesses are forgotten; until then it waits. ResourceExhausted for more than there
  // are.
  absl::StatusOr<uint64_t> TakeSerials(uint64_t count, uint64_t end);
  void ReturnSerials();

  // Whether it is in the range of any owner, allocated or not.
  bool Contains(uint64_t address) const { return address - base_ < total_bytes(); }
  // The same for what a device reaches: its own range and that of page-locked memory.
  bool Reaches(int device, uint64_t address) const {
    return address - Begin(device) < static_cast<uint64_t>(bytes_) ||
           address - Begin(kHost) < static_cast<uint64_t>(bytes_);
  }

  // Where the byte at an address of the range lies for the host, and what is known of it.
  uint8_t* Host(uint64_t address) const { return host_ + (address - base_); }
  ByteState* State(uint64_t address) const { return state_ + (address - base_); }
  PastAccesses* Past(uint64_t address) const { return past_ + (address - base_); }

 private:
  struct Allocation {
    uint64_t address = 0;
    int64_t bytes = 0;
    std::string name;
  };
  // By address.
  using Allocations = std::map<uint64_t, Allocation>;
  struct Owner {
    // Where the next allocation is looked for: freed addresses are used again late.
    uint64_t next = 0;
    int64_t used_bytes = 0;
  };

  Memory(int64_t bytes, int devices)
      : bytes_(bytes), devices_(devices), owners_(static_cast<size_t>(devices) + 1) {}
  absl::Status Map();
  uint64_t total_bytes() const {
    return static_cast<uint64_t>(bytes_) * static_cast<uint64_t>(devices_ + 1);
  }
  // The host's comes first.
  uint64_t Begin(int owner) const {
    return base_ + static_cast<uint64_t>(owner + 1) * static_cast<uint64_t>(bytes_);
  }
  int OwnerOf(uint64_t address) const {
    return static_cast<int>((address - base_) / static_cast<uint64_t>(bytes_)) - 1;
  }
  // The one that the address is in or, by less than the gap behind it, behind; null: none.
  static const Allocation* Near(uint64_t address, const Allocations& in);
  // The first place for `stride` bytes at or behind `from`, before `end`; 0: none.
  uint64_t FindGap(uint64_t from, uint64_t end, uint64_t stride) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string DescribeLocked(uint64_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether they are in one live allocation.
  absl::Status CheckLive(absl::string_view call, uint64_t address, int64_t bytes) const;
  // The same, and `device` reaches it.
  absl::Status CheckReach(int device, absl::string_view call, uint64_t address,
                          int64_t bytes) const;
  absl::Status CheckWritten(absl::string_view call, uint64_t address, int64_t bytes) const;

  // Of each owner.
  const int64_t bytes_;
  const int devices_;
  // No page of it can be read, but for the host's: all addresses.
  uint64_t base_ = 0;
  // All bytes once more.
  uint8_t* host_ = nullptr;
  ByteState* state_ = nullptr;
  PastAccesses* past_ = nullptr;

  mutable device::Mutex mutex_;
  Allocations live_ ABSL_GUARDED_BY(mutex_);
  Allocations freed_ ABSL_GUARDED_BY(mutex_);
  // The host's first.
  std::vector<Owner> owners_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
  int launches_ ABSL_GUARDED_BY(mutex_) = 0;
  device::CondVar launch_ended_;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_MEMORY_H_
