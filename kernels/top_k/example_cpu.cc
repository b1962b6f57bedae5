// The two elements of greatest magnitude, and what is left, on the CPU; and the same of a large
// array, by several threads. It needs top_k_cpu.cc and simd.cc with what they include, and nothing
// else.
//
// Prints: -4.0 at 1, 3.0 at 2; left 1.0 0.0 0.0 3.0; by threads -4.0 at 7, 3.0 at 70000

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "brigade/kernels/top_k/top_k_cpu.h"

namespace {

namespace bk = brigade::kernels;

// Stands for the parallel loop of a program over the chunks of an array, at::parallel_for for
// example, which ends when all of them are done.
template <typename Range>
void ParallelFor(int64_t size, const Range& range) {
  const int64_t middle = size / 2 / bk::kTopKChunk * bk::kTopKChunk;
  std::thread other([&] { range(0, middle); });
  range(middle, size);
  other.join();
}

// What all ranges have found.
bk::TopKFound Collect(const bk::TopKSegment& s, uint32_t least) {
  std::atomic<int64_t> count = 0;
  std::atomic<uint32_t> greatest = 0;
  ParallelFor(s.size, [&](int64_t begin, int64_t end) {
    const bk::TopKFound found = bk::TopKCollectRange<float>(s, least, begin, end);
    count += found.count;
    uint32_t before = greatest;
    while (before < found.greatest && !greatest.compare_exchange_weak(before, found.greatest)) {
    }
  });
  return {count, greatest};
}

// The key of the k-th element.
bk::TopKSelection Search(const bk::TopKSegment& s) {
  uint32_t least = bk::TopKGuess<float>(s);
  bk::TopKFound found = Collect(s, least);
  if (found.count < s.k) found = Collect(s, least = 0);
  bk::TopKSearch search = bk::TopKSearchFrom(least, found, s.k);
  while (!search.done) {
    std::fill(s.workspace, s.workspace + bk::kTopKBins, 0u);
    ParallelFor(s.size, [&](int64_t begin, int64_t end) {
      bk::TopKCountBinsRange<float>(s, search, begin, end);
    });
    search = bk::TopKPick<float>(s, search);
  }
  return {search.from, search.left};
}

// TopKArray by the program's threads.
void TakeByThreads(const bk::TopKSegment& s, bool clear) {
  const bk::TopKSelection selection = Search(s);
  ParallelFor(s.size, [&](int64_t begin, int64_t end) {
    bk::TopKCountChunksRange<float>(s, selection.key, begin, end);
  });
  bk::TopKPlaceChunks(s);
  ParallelFor(s.size, [&](int64_t begin, int64_t end) {
    bk::TopKWriteRange<float>(s, selection, clear, begin, end);
  });
}

}  // namespace

int main() {
  // Of equal magnitudes the first.
  float array[4] = {1, -4, 3, 3}, values[2];
  int32_t indices[2];
  static uint32_t workspace[bk::TopKWorkspaceSize(4)];
  const bk::TopKSegment segment = {array, values, indices, workspace, /*size=*/4, /*k=*/2};
  // In the calling thread.
  bk::TopKArray<float>(segment, /*clear=*/true);
  std::printf("%.1f at %d, %.1f at %d; left %.1f %.1f %.1f %.1f", values[0], indices[0], values[1],
              indices[1], array[0], array[1], array[2], array[3]);

  constexpr int64_t kLarge = 2 * bk::kTopKChunk;
  static float large[kLarge];
  static uint32_t more_workspace[bk::TopKWorkspaceSize(kLarge)];
  large[7] = -4, large[70000] = 3, large[70001] = 2;
  TakeByThreads({large, values, indices, more_workspace, kLarge, /*k=*/2}, /*clear=*/false);
  std::printf("; by threads %.1f at %d, %.1f at %d\n", values[0], indices[0], values[1],
              indices[1]);
}
