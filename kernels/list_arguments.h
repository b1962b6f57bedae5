#ifndef BRIGADE_KERNELS_LIST_ARGUMENTS_H_
#define BRIGADE_KERNELS_LIST_ARGUMENTS_H_

// Checks of a kernel's arguments before anything is enqueued, and what it declares to the race
// checker.

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/address_registry.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/stream.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

// What processors and GPUs address; larger sizes are mistakes, and their bytes could overflow.
inline constexpr uintptr_t kAddressSpace = uintptr_t{1} << 57;

// What is the same for one array of every segment in a list.
struct ArrayRole {
  const char* name;
  int64_t element_bytes;
  bool write;
  // If false, the array must be null in every segment.
  bool present = true;
  // The alignment of the array's address; 0 means element_bytes.
  int64_t alignment = 0;
  // It is read before it is written: in a trace its bytes count twice.
  bool reads = false;
};

// Of an array that an operation updates in place: it is read, too.
constexpr ArrayRole Updated(const char* name, int64_t element_bytes) {
  return {name, element_bytes, /*write=*/true, /*present=*/true, /*alignment=*/0, /*reads=*/true};
}

// InvalidArgument unless `dtype`, the type of the array `name`, is fp32, fp16 or bf16.
absl::Status CheckFloatType(absl::string_view operation, absl::string_view name,
                            precision::DType dtype);

// Checks the arrays of a list of segments and gathers what they touch.
//
// Make one for a call, give it every segment, then finish. All messages begin with the operation's
// name and say which segment and array is meant. Steady state allocates nothing.
class ListArguments {
 public:
  ListArguments(absl::string_view operation, absl::Span<const ArrayRole> roles,
                const device::Stream& stream);

  // The arrays of segment `index`, in the order of the roles. InvalidArgument for a negative size,
  // null with elements, an address that is not a multiple of the element's size, an array that ends
  // beyond the address space or its Buffer, memory that a Buffer or Borrow knows as another
  // device's.
  absl::Status Add(int64_t index, int64_t size, absl::Span<const void* const> arrays);

  // One array of segment `index`, likewise; -1: of an operand.
  absl::Status AddArray(int role, int64_t index, const void* data, int64_t size);

  // One more operand, not part of the list; written unless its type is const.
  template <typename T>
  absl::Status AddOperand(const char* name, T* data, int64_t count) {
    return AddOperand({name, sizeof(T), !std::is_const_v<T>, true, alignof(T)}, data, count);
  }
  absl::Status AddOperand(const ArrayRole& role, const void* data, int64_t elements);

  // InvalidArgument if something written overlaps anything else. Must follow the last Add.
  absl::Status CheckOverlap();

  // For the operation's declaration. Where nobody checks races only how many bytes there are, for
  // the trace, without their addresses. Valid until the next ListArguments of this thread.
  absl::Span<const device::Access> accesses() const;

  // Roles and operands together.
  static constexpr int kMaxArrays = 12;

 private:
  struct Range {
    uintptr_t begin;
    uintptr_t end;
    // -1 for an operand.
    int64_t segment;
    int32_t role;
  };
  // Lists usually lie in address order, array by array: then the hulls decide and nothing is
  // sorted.
  struct Hull {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool ascending = true;
  };
  struct Scratch {
    Scratch() {
      ranges.reserve(256);
    }  // so that a thread's first short list is its last to allocate
    std::vector<Range> ranges;
    std::vector<device::Access> accesses;
  };
  static Scratch& ThreadScratch();

  std::string Label(int role, int64_t segment) const;
  bool HullsAreDisjoint() const;

  const absl::string_view operation_;
  const device::Device device_;
  const bool checks_races_;
  std::array<ArrayRole, kMaxArrays> roles_;
  // One for each role, whose arrays share buffers.
  std::array<device::AddressRegistry::Lookup, kMaxArrays> lookups_;
  std::array<Hull, kMaxArrays> hulls_;
  int role_count_;
  Scratch& scratch_;
};

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_LIST_ARGUMENTS_H_
