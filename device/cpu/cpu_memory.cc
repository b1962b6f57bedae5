#include "brigade/device/cpu/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace brigade::device::internal {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kSmallAlignment = 256;  // as cudaMalloc's

// 1 MiB: large enough to hide the hand-over of a chunk (a few us), small enough to share 4 MiB out.
constexpr int64_t kChunkBytes = int64_t{1} << 20;

}  // namespace

absl::StatusOr<void*> AllocateMemory(int64_t bytes) {
  // Linux promises more than it has and kills the process later; the machine's size is known now.
  const int64_t machine_bytes =
      static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  if (bytes > machine_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the machine has ", machine_bytes, " bytes of memory"));
  }
  const int64_t alignment = bytes >= kHugePageBytes ? kHugePageBytes
                            : bytes >= kPageBytes   ? kPageBytes
                                                    : kSmallAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(alignment), static_cast<size_t>(bytes)) != 0) {
    return absl::ResourceExhaustedError("the system refuses the memory");
  }
  // Advice: nothing depends on whether the system takes it.
  if (bytes >= kHugePageBytes) {
    madvise(data, static_cast<size_t>(bytes / kHugePageBytes * kHugePageBytes), MADV_HUGEPAGE);
  }
  return data;
}

void FreeMemory(void* data) { std::free(data); }

void CopyMemory(void* destination, const void* source, int64_t bytes, ThreadPool& pool) {
  auto* const to = static_cast<char*>(destination);
  const auto* const from = static_cast<const char*>(source);
  pool.ParallelRanges(bytes, kChunkBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

void FillMemory(void* destination, uint8_t value, int64_t bytes, ThreadPool& pool) {
  auto* const to = static_cast<char*>(destination);
  pool.ParallelRanges(bytes, kChunkBytes, [&](int64_t begin, int64_t end) {
    std::memset(to + begin, value, static_cast<size_t>(end - begin));
  });
}

}  // namespace brigade::device::internal
