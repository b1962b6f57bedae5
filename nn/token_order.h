#ifndef BRIGADE_NN_TOKEN_ORDER_H_
#define BRIGADE_NN_TOKEN_ORDER_H_

// The rows of a batch in order of their tokens: radix sorts of CUB on GPUs, a counting sort on the
// CPU.

#include <cstddef>
#include <cstdint>

#include "brigade/nn/rows.h"
#include "brigade/nn/token_ids.h"
#include "brigade/precision/host_device.h"

#if BRIGADE_CUDA
#include <driver_types.h>
#endif

namespace brigade::nn {

// Device memory. Rows with one token are in ascending order; rows without a token of the window
// come last.
struct TokenOrder {
  // [rows]; those of token v from first_row[v] to first_row[v + 1].
  uint32_t* rows;
  // [vocabulary + 1].
  int64_t* first_row;
  int64_t vocabulary;

  // Of the parts (rows.h) of each token's rows, numbered through with gaps, without a sum over
  // tokens. Between two tokens is room for the parts of the first: n > 0 rows have at most
  // n / kRowsOfPart + 1, and min(v, first_row[v]) grows where there is a row.
  BRIGADE_INLINE int64_t FirstPart(int64_t v) const {
    const int64_t first = first_row[v];
    return first / kRowsOfPart + (v < first ? v : first);
  }
};

// Of all tokens together, with the gaps, at most.
int64_t MostTokenParts(int64_t rows, int64_t vocabulary);

// On the CPU, at once.
void OrderTokens(const TokenIds& ids, const TokenOrder& order);

// What the sort on a GPU needs besides.
struct SortMemory {
  // Each [rows]; keys are bytes of tokens.
  uint8_t* keys;
  uint8_t* sorted_keys;
  uint32_t* rows;
  void* temporary;
  size_t temporary_bytes;
};

#if BRIGADE_CUDA
// Bytes of `temporary`, for the current device.
cudaError_t SortTemporaryBytes(int64_t rows, size_t& bytes);

// The sort alone, of `from` by the keys in `memory`. CUB returns the thread's last error, whoever
// made it: an older one that nobody has read is dropped.
cudaError_t LaunchSort(int64_t rows, const uint32_t* from, uint32_t* to, const SortMemory& memory,
                       cudaStream_t stream);
// A sort for each byte of the vocabulary's size, the lowest first: one for texts.
cudaError_t LaunchOrderTokens(const TokenIds& ids, const TokenOrder& order,
                              const SortMemory& memory, cudaStream_t stream);
#endif

}  // namespace brigade::nn

#endif  // BRIGADE_NN_TOKEN_ORDER_H_
