#ifndef BRIGADE_NN_WORKSPACE_H_
#define BRIGADE_NN_WORKSPACE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/nn/token_order.h"
#include "brigade/precision/dtype.h"

namespace brigade::nn {

// What the gradients of layers need to add up rows on many blocks of a GPU: the parts of sums
// (rows.h), and rows in order of tokens.
//
// Memory       Scratch, at Create; the CPU needs the order alone.
// Stream       One for all calls that use it.
class Workspace {
 public:
  // Of the largest layers that use it.
  struct Sizes {
    int64_t rows = 0;
    // The columns of a matrix, twice those of a layer normalisation.
    int64_t sums = 0;
    // Of embeddings.
    int64_t width = 0;
    int64_t vocabulary = kVocabulary;
  };

  // InvalidArgument for 2^32 rows or more, and for a vocabulary of none. On a GPU an older error of
  // the thread that nobody has read is dropped, as by each sort (token_order.h).
  static absl::StatusOr<Workspace> Create(device::Context& context, precision::DType dtype,
                                          const Sizes& sizes);

  // What Create allocates. `context` tells the device; nothing is allocated. Errors of Create.
  static absl::StatusOr<int64_t> Bytes(const device::Context& context, precision::DType dtype,
                                       const Sizes& sizes);

  const device::Buffer& memory() const { return memory_; }
  int64_t rows() const { return rows_; }

  // With the vocabulary of Create.
  const TokenOrder& order() const { return order_; }
  // Null on the CPU, which needs no memory for parts.
  void* parts() const { return parts_; }
  // The room for parts, on the CPU too.
  int64_t parts_bytes() const { return parts_bytes_; }
  const SortMemory& sort_memory() const { return sort_; }

 private:
  // Without memory.
  static absl::StatusOr<Workspace> Measure(const device::Context& context, precision::DType dtype,
                                           const Sizes& sizes);
  // Cuts the memory; counts its bytes if there is none.
  int64_t LayOut(char* memory);

  device::Buffer memory_;
  int64_t rows_ = 0;
  TokenOrder order_ = {};
  void* parts_ = nullptr;
  int64_t parts_bytes_ = 0;
  SortMemory sort_ = {};
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_WORKSPACE_H_
