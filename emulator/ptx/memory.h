#ifndef BRIGADE_EMULATOR_PTX_MEMORY_H_
#define BRIGADE_EMULATOR_PTX_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

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
};

// The last accesses to a byte, as AccessId of block.h; 0: none.
struct PastAccesses {
  uint64_t write = 0;
  uint64_t read = 0;
};

// The memory of a device: addresses that the host cannot follow, and what is known of each byte.
//
// Layout       Allocations start at multiples of 512 and are at least 256 bytes apart, so that an
//              access of 16 bytes that leaves one meets a byte that is in none.
// Threads      Allocate, Free and Describe at any time; the others as for plain memory.
class Memory {
 public:
  // Takes `bytes` of address space. Memory is taken from the system as it is used: a byte for each
  // that is allocated, another when it is written, and 16 when a kernel accesses it.
  // ResourceExhausted if the system gives no such range.
  static absl::StatusOr<std::unique_ptr<Memory>> Create(int64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns an address that is no other allocation's for as long as possible. `name` is for
  // reports. ResourceExhausted if it does not fit.
  absl::StatusOr<uint64_t> Allocate(int64_t bytes, absl::string_view name);

  // InvalidArgument for what is not the start of a live allocation; names what is there.
  absl::Status Free(uint64_t address);

  // Copies from and to the host. InvalidArgument if a byte is outside of live allocations, or, for
  // Read, has never been written; nothing is copied then.
  absl::Status Read(uint64_t address, void* to, int64_t bytes) const;
  absl::Status Write(uint64_t address, const void* from, int64_t bytes);

  // Whether the range is in one live allocation.
  bool Holds(uint64_t address, int64_t bytes) const;

  // "byte 1036 of 1024 of \"weights\"", or what else is at the address or near it.
  std::string Describe(uint64_t address) const;

  // The first of `count` numbers for the blocks of a launch, below `end`, that no past access has.
  // When they have run out, past accesses are forgotten. ResourceExhausted for more than there are.
  absl::StatusOr<uint64_t> TakeSerials(uint64_t count, uint64_t end);

  // Whether it is in the device's range of addresses, allocated or not.
  bool Contains(uint64_t address) const { return address - base_ < static_cast<uint64_t>(bytes_); }

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

  explicit Memory(int64_t bytes) : bytes_(bytes) {}
  absl::Status Map();
  // The one that the address is in or, by less than the gap behind it, behind; null: none.
  static const Allocation* Near(uint64_t address, const Allocations& in);
  // The first place for `stride` bytes at or behind `from`; 0: none.
  uint64_t FindGap(uint64_t from, uint64_t stride) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Check(absl::string_view call, uint64_t address, int64_t bytes,
                     ByteState least) const;

  const int64_t bytes_;
  // No page of it can be read: the device's addresses.
  uint64_t base_ = 0;
  uint8_t* host_ = nullptr;
  ByteState* state_ = nullptr;
  PastAccesses* past_ = nullptr;

  mutable device::Mutex mutex_;
  Allocations live_ ABSL_GUARDED_BY(mutex_);
  Allocations freed_ ABSL_GUARDED_BY(mutex_);
  // Where the next allocation is looked for: freed addresses are used again late.
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace brigade::emulator

#endif  // BRIGADE_EMULATOR_PTX_MEMORY_H_
