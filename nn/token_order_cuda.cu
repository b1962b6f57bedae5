// The stable sort of rows by tokens, by CUB.

#include <algorithm>

#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "brigade/nn/rows_cuda.cuh"
#include "brigade/nn/token_order.h"

namespace brigade::nn {
namespace {

// Of a token.
constexpr int kBeginBit = 0, kEndBit = 8;

__global__ void __launch_bounds__(kThreads)
    TokensKernel(const Texts texts, uint8_t* tokens, uint32_t* rows) {
  for (int64_t r = int64_t{blockIdx.x} * kThreads + threadIdx.x; r < texts.rows();
       r += int64_t{gridDim.x} * kThreads) {
    tokens[r] = static_cast<uint8_t>(texts.token(r));
    rows[r] = static_cast<uint32_t>(r);
  }
}

// The first row whose token is at least `token`.
__device__ int64_t LowerBound(const uint8_t* sorted, int64_t rows, int token) {
  int64_t begin = 0, end = rows;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (sorted[middle] < token) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// One block, a thread for each token.
__global__ void __launch_bounds__(kVocabulary)
    TokenRangesKernel(const uint8_t* sorted, int64_t rows, const TokenOrder order) {
  using Scan = cub::BlockScan<int64_t, kVocabulary>;
  __shared__ typename Scan::TempStorage memory;
  const int token = static_cast<int>(threadIdx.x);
  const int64_t begin = LowerBound(sorted, rows, token);
  const int64_t end = LowerBound(sorted, rows, token + 1);
  int64_t first_part, parts;
  Scan(memory).ExclusiveSum(PartsOf(end - begin), first_part, parts);
  order.first_row[token] = begin;
  order.first_part[token] = first_part;
  if (token == kVocabulary - 1) {
    order.first_row[kVocabulary] = rows;
    order.first_part[kVocabulary] = parts;
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

cudaError_t LaunchSort(int64_t rows, const TokenOrder& order, const SortMemory& memory,
                       cudaStream_t stream) {
  static_cast<void>(cudaGetLastError());
  size_t bytes = memory.temporary_bytes;
  return cub::DeviceRadixSort::SortPairs(memory.temporary, bytes, memory.tokens,
                                         memory.sorted_tokens, memory.rows, order.rows, rows,
                                         kBeginBit, kEndBit, stream);
}

cudaError_t LaunchOrderTokens(const Texts& texts, const TokenOrder& order, const SortMemory& memory,
                              cudaStream_t stream) {
  const int64_t rows = texts.rows();
  cudaError_t error =
      kernels::LaunchKernel<TokensKernel>(Blocks(std::max<int64_t>(rows, 1), kThreads), kThreads,
                                          stream, texts, memory.tokens, memory.rows);
  if (error == cudaSuccess) error = LaunchSort(rows, order, memory, stream);
  if (error != cudaSuccess) return error;
  return kernels::LaunchKernel<TokenRangesKernel>(1, kVocabulary, stream, memory.sorted_tokens,
                                                  rows, order);
}

}  // namespace brigade::nn
