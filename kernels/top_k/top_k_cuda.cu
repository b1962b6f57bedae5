// The greatest elements of arrays on the GPU, by a radix select: each look at the keys reads the
// array, to count the bits that come next; two more reads count what is selected, and write it. 20
// bytes an element of float. A warp has 8 loads of 4 bytes a thread in flight, 64 KiB an SM.
//
// Counts are integers, which atomics add to the same sum in any order.

#include "brigade/kernels/internal/gpu_tile.h"
#include "brigade/kernels/internal/segments.h"
#include "brigade/kernels/launch_kernel.h"
#include "brigade/kernels/top_k/top_k_cuda.h"

namespace brigade::kernels {
namespace {

// Segments of 48 bytes, with their first tiles, that fill a launch's arguments.
constexpr int kMaxSegments = 580;
constexpr int kThreads = kTileThreads;
constexpr int kWarps = kThreads / kWarp;
// The elements of a block that counts bins, so that adding its table costs little; untuned.
constexpr int64_t kBinTile = 32 * kTopKUnit;
// The elements of a thread that are loaded before the first is looked at.
constexpr int kAtOnce = 8;
static_assert(kTopKUnit % (kAtOnce * kWarp) == 0);

template <int kCapacity>
struct TopKArguments {
  int32_t pass;
  bool clear;
  SegmentBatch<TopKSegment, kCapacity> batch;
};
static_assert(sizeof(TopKArguments<kMaxSegments>) <= kMaxLaunchArgumentBytes);

__device__ TopKSelection& SelectionOf(const TopKSegment& s) {
  return *reinterpret_cast<TopKSelection*>(s.workspace + kTopKBins);
}
__device__ uint32_t* UnitsOf(const TopKSegment& s) { return s.workspace + kTopKBins + 2; }

// Calls visit(i, element, whether it is one) for every kStep-th element from i on, kAtOnce loads
// before the first call; as often for all threads of a warp.
template <int kStep, typename T, typename Visit>
__device__ void ForElements(const T* array, int64_t begin, int64_t end, int thread,
                            const Visit& visit) {
  for (int64_t from = begin; from < end; from += int64_t{kAtOnce} * kStep) {
    T elements[kAtOnce];
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = from + j * kStep + thread;
      elements[j] = i < end ? array[i] : T();
    }
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = from + j * kStep + thread;
      visit(i, elements[j], i < end);
    }
  }
}

template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    TopKStartKernel(const __grid_constant__ TopKArguments<kCapacity> arguments) {
  const TopKSegment& s = arguments.batch.segments[blockIdx.x];
  for (int bin = threadIdx.x; bin < kTopKBins; bin += kThreads) s.workspace[bin] = 0;
  if (threadIdx.x == 0) SelectionOf(s) = {0, static_cast<uint32_t>(s.k)};
}

template <typename T, int kCapacity>
__global__ void __launch_bounds__(kThreads, 4)
    TopKBinsKernel(const __grid_constant__ TopKArguments<kCapacity> arguments) {
  __shared__ uint32_t counts[kTopKBins];
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const TopKSegment& s = batch.segments[index];
  const int pass = arguments.pass;
  const uint32_t known = SelectionOf(s).key;
  const int64_t begin = (blockIdx.x - batch.first_tile[index]) * kBinTile;
  const int64_t end = begin + kBinTile < s.size ? begin + kBinTile : s.size;
  for (int bin = threadIdx.x; bin < kTopKBins; bin += kThreads) counts[bin] = 0;
  __syncthreads();
  ForElements<kThreads>(static_cast<const T*>(s.array), begin, end, threadIdx.x,
                        [&](int64_t, T element, bool has) {
                          const uint32_t key = TopKKey(element);
                          if (!has || !TopKIsCandidate(key, known, pass)) return;
                          atomicAdd(&counts[TopKBin(key, pass)], 1u);
                        });
  __syncthreads();
  for (int bin = threadIdx.x; bin < kTopKBins; bin += kThreads) {
    if (counts[bin] != 0) atomicAdd(&s.workspace[bin], counts[bin]);
  }
}

// One block an array: the bits of the k-th key, and empty bins for the next look.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    TopKPickKernel(const __grid_constant__ TopKArguments<kCapacity> arguments) {
  constexpr int kBins = kTopKBins / kThreads;
  __shared__ uint32_t sums[kThreads];
  const TopKSegment& s = arguments.batch.segments[blockIdx.x];
  TopKSelection& selection = SelectionOf(s);
  const TopKSelection before = selection;
  // A thread's bins, from the top: thread 0 has the highest ones.
  const int top = kTopKBins - 1 - static_cast<int>(threadIdx.x) * kBins;
  uint32_t counts[kBins];
  uint32_t sum = 0;
  for (int j = 0; j < kBins; ++j) {
    counts[j] = s.workspace[top - j];
    s.workspace[top - j] = 0;
    sum += counts[j];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  uint32_t above = 0;
  for (int t = 0; t < static_cast<int>(threadIdx.x); ++t) above += sums[t];
  if (above >= before.left || above + sum < before.left) return;
  // One thread of the block.
  for (int j = 0; j < kBins; ++j) {
    if (above + counts[j] >= before.left) {
      const auto bits = static_cast<uint32_t>(top - j) << TopKShift(arguments.pass);
      selection = {before.key | bits, before.left - above};
      return;
    }
    above += counts[j];
  }
}

template <typename T, int kCapacity>
__global__ void __launch_bounds__(kThreads, 4)
    TopKCountKernel(const __grid_constant__ TopKArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const TopKSegment& s = batch.segments[index];
  const int64_t unit = (blockIdx.x - batch.first_tile[index]) * kWarps + threadIdx.x / kWarp;
  if (unit >= TopKUnits(s.size)) return;  // the whole warp
  const int lane = threadIdx.x % kWarp;
  const uint32_t wanted = SelectionOf(s).key;
  const int64_t begin = unit * kTopKUnit;
  const int64_t end = begin + kTopKUnit < s.size ? begin + kTopKUnit : s.size;
  // Those above in the high half, equal ones in the low half: at most 2048 of both.
  uint32_t counts = 0;
  ForElements<kWarp>(static_cast<const T*>(s.array), begin, end, lane,
                     [&](int64_t, T element, bool has) {
                       const uint32_t key = TopKKey(element);
                       if (has && key > wanted) counts += 1u << 16;
                       if (has && key == wanted) ++counts;
                     });
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    counts += __shfl_xor_sync(0xffffffffu, counts, distance);
  }
  if (lane == 0) {
    UnitsOf(s)[2 * unit] = counts >> 16;
    UnitsOf(s)[2 * unit + 1] = counts & 0xffffu;
  }
}

// One block an array: from counts of units to those of all units before.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads)
    TopKPlaceKernel(const __grid_constant__ TopKArguments<kCapacity> arguments) {
  __shared__ uint32_t above[kThreads], equal[kThreads];
  const TopKSegment& s = arguments.batch.segments[blockIdx.x];
  uint32_t* const units = UnitsOf(s);
  const int64_t count = TopKUnits(s.size);
  const int64_t each = CeilDiv(count, kThreads);
  const int thread = threadIdx.x;
  const int64_t begin = thread * each;
  const int64_t end = begin + each < count ? begin + each : count;
  uint32_t own_above = 0, own_equal = 0;
  for (int64_t u = begin; u < end; ++u) {
    own_above += units[2 * u];
    own_equal += units[2 * u + 1];
  }
  above[thread] = own_above;
  equal[thread] = own_equal;
  __syncthreads();
  uint32_t place_above = 0, place_equal = 0;
  for (int t = 0; t < thread; ++t) {
    place_above += above[t];
    place_equal += equal[t];
  }
  for (int64_t u = begin; u < end; ++u) {
    const uint32_t here_above = units[2 * u];
    const uint32_t here_equal = units[2 * u + 1];
    units[2 * u] = place_above;
    units[2 * u + 1] = place_equal;
    place_above += here_above;
    place_equal += here_equal;
  }
}

template <typename T, int kCapacity>
__global__ void __launch_bounds__(kThreads, 4)
    TopKWriteKernel(const __grid_constant__ TopKArguments<kCapacity> arguments) {
  const auto& batch = arguments.batch;
  const int64_t index = batch.Find(blockIdx.x);
  const TopKSegment& s = batch.segments[index];
  const int64_t unit = (blockIdx.x - batch.first_tile[index]) * kWarps + threadIdx.x / kWarp;
  if (unit >= TopKUnits(s.size)) return;  // the whole warp
  const int lane = threadIdx.x % kWarp;
  const unsigned before = (1u << lane) - 1;
  const TopKSelection selection = SelectionOf(s);
  T* const array = static_cast<T*>(s.array);
  T* const values = static_cast<T*>(s.values);
  uint32_t above = UnitsOf(s)[2 * unit];
  uint32_t equal = UnitsOf(s)[2 * unit + 1];
  const int64_t begin = unit * kTopKUnit;
  const int64_t end = begin + kTopKUnit < s.size ? begin + kTopKUnit : s.size;
  ForElements<kWarp>(
      static_cast<const T*>(array), begin, end, lane, [&](int64_t i, T element, bool has) {
        const uint32_t key = TopKKey(element);
        const bool is_above = has && key > selection.key;
        const bool is_equal = has && key == selection.key;
        const unsigned all_above = __ballot_sync(0xffffffffu, is_above);
        const unsigned all_equal = __ballot_sync(0xffffffffu, is_equal);
        const uint32_t equal_before = equal + __popc(all_equal & before);
        if (is_above || (is_equal && equal_before < selection.left)) {
          const uint32_t place =
              TopKPlace(above + __popc(all_above & before), equal_before, selection.left);
          values[place] = element;
          s.indices[place] = static_cast<int32_t>(i);
          if (arguments.clear) array[i] = T(0.0f);
        }
        above += __popc(all_above);
        equal += __popc(all_equal);
      });
}

}  // namespace

template <typename T>
cudaError_t LaunchTopK(const TopKSegment* segments, int64_t count, bool clear,
                       cudaStream_t stream) {
  return WithCapacity<kMaxSegments>(count, [&](auto capacity) {
    TopKArguments<capacity> arguments;
    arguments.pass = 0;
    arguments.clear = clear;
    // Calls launch(blocks) with `elements` of them for a block, or a block an array for 0.
    const auto for_blocks = [&](int64_t elements, const auto& launch) {
      return ForEachBatch(
          segments, count, kMaxGridBlocks,
          [&](const TopKSegment& s) {
            if (s.k == 0) return int64_t{0};
            return elements == 0 ? int64_t{1} : CeilDiv(s.size, elements);
          },
          arguments.batch, cudaSuccess,
          [&](int64_t) { return launch(static_cast<unsigned>(arguments.batch.tiles())); });
    };
    cudaError_t error = for_blocks(0, [&](unsigned blocks) {
      return LaunchKernel<TopKStartKernel<capacity>>(blocks, kThreads, stream, arguments);
    });
    for (int pass = 0; pass < kTopKPasses && error == cudaSuccess; ++pass) {
      arguments.pass = pass;
      error = for_blocks(kBinTile, [&](unsigned blocks) {
        return LaunchKernel<TopKBinsKernel<T, capacity>>(blocks, kThreads, stream, arguments);
      });
      if (error != cudaSuccess) return error;
      error = for_blocks(0, [&](unsigned blocks) {
        return LaunchKernel<TopKPickKernel<capacity>>(blocks, kThreads, stream, arguments);
      });
    }
    if (error != cudaSuccess) return error;
    constexpr int64_t kUnitTile = kWarps * kTopKUnit;
    error = for_blocks(kUnitTile, [&](unsigned blocks) {
      return LaunchKernel<TopKCountKernel<T, capacity>>(blocks, kThreads, stream, arguments);
    });
    if (error != cudaSuccess) return error;
    error = for_blocks(0, [&](unsigned blocks) {
      return LaunchKernel<TopKPlaceKernel<capacity>>(blocks, kThreads, stream, arguments);
    });
    if (error != cudaSuccess) return error;
    return for_blocks(kUnitTile, [&](unsigned blocks) {
      return LaunchKernel<TopKWriteKernel<T, capacity>>(blocks, kThreads, stream, arguments);
    });
  });
}

#define BRIGADE_INSTANTIATE(T) \
  template cudaError_t LaunchTopK<T>(const TopKSegment*, int64_t, bool, cudaStream_t);
BRIGADE_INSTANTIATE(float)
BRIGADE_INSTANTIATE(precision::Half)
BRIGADE_INSTANTIATE(precision::BFloat16)
#undef BRIGADE_INSTANTIATE

}  // namespace brigade::kernels
