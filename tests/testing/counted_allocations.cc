#include "brigade/tests/testing/counted_allocations.h"

#include <execinfo.h>
#include <link.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

// What is given out, and the most of it since a PeakOfAllocations was made.
std::atomic<int64_t> live_bytes{0}, peak_bytes{0};

void RaisePeak(int64_t live) {
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

// Of AllocationsByLibrary.
std::atomic<uintptr_t> library_begin{0}, library_end{0};
std::atomic<int64_t> inside_library{0}, outside_library{0};

bool LibraryIsOnTheStack() {
  void* frames[64];
  const int depth = backtrace(frames, 64);
  return std::any_of(frames, frames + depth, [](const void* frame) {
    const auto address = reinterpret_cast<uintptr_t>(frame);
    return address >= library_begin && address < library_end;
  });
}

int TakeRangeIfNamed(dl_phdr_info* info, size_t, void* name) {
  if (std::strstr(info->dlpi_name, static_cast<const char*>(name)) == nullptr) return 0;
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD) end = std::max(end, segment.p_vaddr + segment.p_memsz);
  }
  library_begin = info->dlpi_addr;
  library_end = info->dlpi_addr + end;
  return 1;
}

// Not inlined: g++ would see malloc's memory given to delete and warn.
[[gnu::noinline]] void* Allocate(size_t bytes, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (library_end.load(std::memory_order_relaxed) != 0) {
    ++(LibraryIsOnTheStack() ? inside_library : outside_library);
  }
  void* data = nullptr;
  if (posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes) != 0) std::abort();
  const auto given = static_cast<int64_t>(malloc_usable_size(data));
  RaisePeak(live_bytes.fetch_add(given, std::memory_order_relaxed) + given);
  return data;
}

[[gnu::noinline]] void Free(void* data) {
  live_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(data)), std::memory_order_relaxed);
  std::free(data);
}

}  // namespace

namespace brigade::testing {

int64_t CountedAllocations() { return allocations.load(std::memory_order_relaxed); }

PeakOfAllocations::PeakOfAllocations() : before_(live_bytes) { peak_bytes = before_; }

int64_t PeakOfAllocations::bytes() const { return peak_bytes - before_; }

AllocationsByLibrary::AllocationsByLibrary(const char* name) {
  LibraryIsOnTheStack();  // the first backtrace loads a library
  inside_library = outside_library = 0;
  if (dl_iterate_phdr(TakeRangeIfNamed, const_cast<char*>(name)) == 0) std::abort();
}

AllocationsByLibrary::~AllocationsByLibrary() { library_end = 0; }

int64_t AllocationsByLibrary::inside() const { return inside_library; }
int64_t AllocationsByLibrary::outside() const { return outside_library; }

}  // namespace brigade::testing

void* operator new(size_t bytes) { return Allocate(bytes, 16); }
void* operator new[](size_t bytes) { return Allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
// What std::stable_sort takes its memory from.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 16); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 16); }
void operator delete(void* data) noexcept { Free(data); }
void operator delete[](void* data) noexcept { Free(data); }
void operator delete(void* data, size_t) noexcept { Free(data); }
void operator delete[](void* data, size_t) noexcept { Free(data); }
void operator delete(void* data, std::align_val_t) noexcept { Free(data); }
void operator delete[](void* data, std::align_val_t) noexcept { Free(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { Free(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { Free(data); }
