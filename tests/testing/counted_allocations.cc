#include "brigade/tests/testing/counted_allocations.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

// Not inlined: g++ would see malloc's memory given to delete and warn.
[[gnu::noinline]] void* Allocate(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* data = nullptr;
  if (posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes) != 0) std::abort();
  return data;
}

[[gnu::noinline]] void Free(void* data) { std::free(data); }

}  // namespace

namespace brigade::testing {

int64_t CountedAllocations() { return allocations.load(std::memory_order_relaxed); }

}  // namespace brigade::testing

void* operator new(size_t bytes) { return Allocate(bytes, 16); }
void* operator new[](size_t bytes) { return Allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* data) noexcept { Free(data); }
void operator delete[](void* data) noexcept { Free(data); }
void operator delete(void* data, size_t) noexcept { Free(data); }
void operator delete[](void* data, size_t) noexcept { Free(data); }
void operator delete(void* data, std::align_val_t) noexcept { Free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { Free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { Free(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { Free(data); }
