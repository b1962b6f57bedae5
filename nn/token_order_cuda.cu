// The stable sort of rows by tokens, by CUB: one of bytes, for each byte of a token. Sorts of wider
// keys are other kernels, which spin on one another's results.

#include <algorithm>
#include <bit>
#include <utility>

#include <cub/device/device_radix_sort.cuh>

#include "brigade/nn/rows_cuda.cuh"
#include "brigade/nn/token_order.h"

namespace brigade::nn {
namespace {

// Of a key.
constexpr int kBeginBit = 0, kEndBit = 8;

// Rows without a token of the window come last.
__device__ int64_t KeyOf(const TokenIds& ids, int64_t row) {
  const int64_t token = ids.token(row);
  return token < 0 ? ids.vocabulary() : token;
}

// Byte `byte` of the keys of `rows`, which are all in ascending order before the first sort.
__global__ void __launch_bounds__(kThreads)
    KeysKernel(const TokenIds ids, int byte, uint8_t* keys, uint32_t* rows) {
  for (int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x; r < ids.rows();
       r += int64_t{gridDim.x} * kThreads) {
    if (byte == 0) rows[r] = static_cast<uint32_t>(r);
    keys[r] = static_cast<uint8_t>(KeyOf(ids, rows[r]) >> (8 * byte));
  }
}

// first_row[v] is the first row in order whose token is at least v.
__global__ void __launch_bounds__(kThreads)
    TokenRangesKernel(const TokenIds ids, const TokenOrder order) {
  for (int64_t v = int64_t{blockIdx.x} * kThreads + threadIdx.x; v <= order.vocabulary;
       v += int64_t{gridDim.x} * kThreads) {
    int64_t begin = 0, end = ids.rows();
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (KeyOf(ids, order.rows[middle]) < v) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    order.first_row[v] = begin;
  }
}

}  // namespace

cudaError_t SortTemporaryBytes(int64_t rows, size_t& bytes) {
  static_cast<void>(cudaGetLastError());
  return cub::DeviceRadixSort::SortPairs(nullptr, bytes, static_cast<const uint8_t*>(nullptr),
                                         static_cast<uint8_t*>(nullptr),
                                         static_cast<const uint32_t*>(nullptr),
                                         static_cast<uint32_t*>(nullptr), rows, kBeginBit, kEndBit);
}

cudaError_t LaunchSort(int64_t rows, const uint32_t* from, uint32_t* to, const SortMemory& memory,
                       cudaStream_t stream) {
  static_cast<void>(cudaGetLastError());
  size_t bytes = memory.temporary_bytes;
  return cub::DeviceRadixSort::SortPairs(memory.temporary, bytes, memory.keys, memory.sorted_keys,
                                         from, to, rows, kBeginBit, kEndBit, stream);
}

cudaError_t LaunchOrderTokens(const TokenIds& ids, const TokenOrder& order,
                              const SortMemory& memory, cudaStream_t stream) {
  const int64_t rows = ids.rows();
  const auto largest =
      static_cast<uint64_t>(ids.are_bytes() ? ids.vocabulary() - 1 : ids.vocabulary());
  const int sorts = std::max(1, (static_cast<int>(std::bit_width(largest)) + 7) / 8);
  // They take turns, and the last sort writes order.rows.
  uint32_t *from = memory.rows, *to = order.rows;
  if (sorts % 2 == 0) std::swap(from, to);
  for (int byte = 0; byte < sorts; ++byte) {
    cudaError_t error =
        kernels::LaunchKernel<KeysKernel>(Blocks(std::max<int64_t>(rows, 1), kThreads), kThreads,
                                          stream, ids, byte, memory.keys, from);
    if (error == cudaSuccess) error = LaunchSort(rows, from, to, memory, stream);
    if (error != cudaSuccess) return error;
    std::swap(from, to);
  }
  return kernels::LaunchKernel<TokenRangesKernel>(Blocks(order.vocabulary + 1, kThreads), kThreads,
                                                  stream, ids, order);
}

}  // namespace brigade::nn
