#ifndef BRIGADE_BENCHMARKS_KERNELS_CEILING_H_
#define BRIGADE_BENCHMARKS_KERNELS_CEILING_H_

// What the memory allows: loops that touch the same streams as a kernel and compute next to
// nothing, so that a kernel's share of their speed says what its arithmetic and bookkeeping cost.
// They run on the kernel's own arrays and threads, for the same instruction set, and change no
// value but those of write-only outputs.

#include <array>
#include <cstdint>
#include <vector>

#include "brigade/benchmarks/common/interleave.h"

namespace brigade::benchmarks {

// Reads `grad`, updates `kState` arrays of float in place, and writes `copy` unless Copy is NoCopy
// (kernels/update_types.h): the streams of an optimizer.
template <typename Grad, typename Copy, int kState>
Work UpdateCeiling(std::array<float*, kState> state, const Grad* grad, Copy* copy, int64_t size);

// The same with one array of float and two of bytes: those of moments that are codes, whose scales
// are left out. `size` is a multiple of 8, or what is left is not moved.
template <typename Grad, typename Copy>
Work CodedUpdateCeiling(float* param, std::array<uint8_t*, 2> codes, const Grad* grad, Copy* copy,
                        int64_t size);

// Reads `bytes` bytes, without and with prefetches.
std::vector<Work> ReadCeilings(const void* data, int64_t bytes);

// Reads `source` and writes `target`, with ordinary stores and past the caches. Both are aligned to
// cache lines, and `size` is a multiple of 4096.
template <typename Source, typename Target>
std::vector<Work> TransferCeilings(const Source* source, Target* target, int64_t size);

// Reads kReads cache lines of `source` for kWrites of `target` that it writes, `groups` times, with
// ordinary stores and past the caches: what codes of fewer bits move. Both are aligned to lines.
template <int kReads, int kWrites>
std::vector<Work> LineCeilings(const void* source, void* target, int64_t groups);

// Reads `source` and updates `target` in place.
template <typename Source>
Work AccumulateCeiling(const Source* source, float* target, int64_t size);

// Updates `matrix` in place and writes as much to `product`, with ordinary stores and past the
// caches.
std::vector<Work> RestoreCeilings(float* matrix, float* product, int64_t size);

// One after the other: the ceiling of what no single loop here touches.
Work InTurn(std::vector<Work> works);

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_KERNELS_CEILING_H_
