#ifndef BRIGADE_KERNELS_TOP_K_TOP_K_CPU_H_
#define BRIGADE_KERNELS_TOP_K_TOP_K_CPU_H_

#include <cstdint>

#include "brigade/kernels/top_k/top_k_math.h"

namespace brigade::kernels {

// TopK of one array (top_k.h), in the calling thread and without checks of the arguments. k is at
// least 1. Made for the threads that a program has.
//
// Types  Instantiated for float, Half and BFloat16, as all here.
template <typename T>
void TopKArray(const TopKSegment& segment, bool clear);

// The parts of it, for several threads. In this order, each for all of the array before the next:
//
//   least = TopKGuess;  found = TopKCollectRange of all ranges: their sum and greatest key
//   if found is less than k: TopKCollectRange of all ranges with least 0
//   search = TopKSearchFrom
//   until search is done: bins = 0;  TopKCountBinsRange of all ranges;  TopKPick
//   TopKCountChunksRange of all ranges;  TopKPlaceChunks;  TopKWriteRange of all ranges
//
// Ranges  Of whole chunks: `begin` is a multiple of kTopKChunk, and `end` is one or the array's
//         size. Threads may take any such ranges. Those of TopKCountBinsRange and all after it are
//         best long: candidates are few, and a table of bins is added once for each call.

// The elements whose candidates lie one behind the other in the workspace.
inline constexpr int64_t kTopKChunk = 32 * kTopKUnit;

// What of an array may be selected: how many elements, and the greatest of their keys.
struct TopKFound {
  int64_t count;
  uint32_t greatest;
};

// Where the k-th element's key is, as far as it is known: in [from, from + size), and `left` of the
// elements with these keys are selected. Done: it is `from`.
struct TopKSearch {
  uint32_t from;
  uint32_t size;
  // Of those keys, 2^shift have a bin together.
  int shift;
  uint32_t left;
  bool done;
};

// A key that about k elements have or exceed, rather more: from a sample of the array. 0 where that
// would leave too many.
template <typename T>
uint32_t TopKGuess(const TopKSegment& segment);

// Notes the candidates of each chunk in the workspace: elements with keys from `least` on.
template <typename T>
TopKFound TopKCollectRange(const TopKSegment& segment, uint32_t least, int64_t begin, int64_t end);

// From what was found with keys from `least` on.
TopKSearch TopKSearchFrom(uint32_t least, const TopKFound& found, int64_t k);

// Adds to the bins of the workspace, atomically, how many candidates of the range have the keys of
// each.
template <typename T>
void TopKCountBinsRange(const TopKSegment& segment, const TopKSearch& search, int64_t begin,
                        int64_t end);

// The next search, from the counts of all bins.
template <typename T>
TopKSearch TopKPick(const TopKSegment& segment, const TopKSearch& before);

// Counts the candidates of each chunk that are above the key, and that have it.
template <typename T>
void TopKCountChunksRange(const TopKSegment& segment, uint32_t key, int64_t begin, int64_t end);

// From these to those of all chunks before.
void TopKPlaceChunks(const TopKSegment& segment);

// Values and indices of the range, and with `clear` 0 in their place. `selection` is the key that
// was found and `left` of it.
template <typename T>
void TopKWriteRange(const TopKSegment& segment, TopKSelection selection, bool clear, int64_t begin,
                    int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_TOP_K_TOP_K_CPU_H_
