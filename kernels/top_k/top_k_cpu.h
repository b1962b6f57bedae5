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
//   least = TopKGuess;  found = the sum of TopKCollectRange of all ranges
//   if found is less than k: TopKCollectRange of all ranges with least 0
//   selection = {0, k}
//   for each pass: bins = 0;  TopKCountBinsRange of all ranges;  TopKPick
//   TopKCountUnitsRange of all ranges;  TopKPlaceUnits;  TopKWriteRange of all ranges
//
// Ranges  Of whole units: `begin` is a multiple of kTopKUnit, and `end` is one or the array's size.
//         Threads may take any such ranges.

// A key that about k elements have or exceed, rather more: from a sample of the array. 0 where that
// would leave too many.
template <typename T>
uint32_t TopKGuess(const TopKSegment& segment);

// Notes the candidates of each unit in the workspace: elements with keys from `least` on. Returns
// how many there are.
template <typename T>
int64_t TopKCollectRange(const TopKSegment& segment, uint32_t least, int64_t begin, int64_t end);

// Adds to the bins of the workspace, atomically, how often candidates of the range that have the
// known bits have each of the pass's bits.
template <typename T>
void TopKCountBinsRange(const TopKSegment& segment, int pass, uint32_t known, int64_t begin,
                        int64_t end);

// The selection with the pass's bits, from the counts of all bins.
TopKSelection TopKPick(const TopKSegment& segment, int pass, TopKSelection before);

// Counts the candidates of each unit that are above the key, and that have it.
template <typename T>
void TopKCountUnitsRange(const TopKSegment& segment, uint32_t key, int64_t begin, int64_t end);

// From these to those of all units before.
void TopKPlaceUnits(const TopKSegment& segment);

// Values and indices of the range, and with `clear` 0 in their place.
template <typename T>
void TopKWriteRange(const TopKSegment& segment, TopKSelection selection, bool clear, int64_t begin,
                    int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_TOP_K_TOP_K_CPU_H_
