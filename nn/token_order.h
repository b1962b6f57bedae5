#ifndef BRIGADE_NN_TOKEN_ORDER_H_
#define BRIGADE_NN_TOKEN_ORDER_H_

// The rows of a batch in order of their tokens: a radix sort of CUB on GPUs, a counting sort on the
// CPU.

#include <cstddef>
#include <cstdint>

#include "brigade/nn/texts.h"
#include "brigade/precision/host_device.h"

#if BRIGADE_CUDA
#include <driver_types.h>
#endif

namespace brigade::nn {

// Device memory. Rows with one token are in ascending order.
struct TokenOrder {
  // [rows]; those of token v from first_row[v] to first_row[v + 1].
  uint32_t* rows;
  // [kVocabulary + 1].
  int64_t* first_row;
  // [kVocabulary + 1]: of the parts (rows.h) of each token's rows, numbered through.
  int64_t* first_part;
};

// Of all tokens together, at most.
int64_t MostTokenParts(int64_t rows);

// On the CPU, at once.
void OrderTokens(const Texts& texts, const TokenOrder& order);

// What the sort on a GPU needs besides.
struct SortMemory {
  // Each [rows].
  uint8_t* tokens;
  uint8_t* sorted_tokens;
  uint32_t* rows;
  void* temporary;
  size_t temporary_bytes;
};

#if BRIGADE_CUDA
// Bytes of `temporary`, for the current device.
cudaError_t SortTemporaryBytes(int64_t rows, size_t& bytes);

// The sort alone, of tokens and rows in `memory`. CUB returns the thread's last error, whoever made
// it: an older one that nobody has read is dropped.
cudaError_t LaunchSort(int64_t rows, const TokenOrder& order, const SortMemory& memory,
                       cudaStream_t stream);
cudaError_t LaunchOrderTokens(const Texts& texts, const TokenOrder& order, const SortMemory& memory,
                              cudaStream_t stream);
#endif

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TOKEN_ORDER_H_
