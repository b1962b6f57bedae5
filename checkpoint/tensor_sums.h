#ifndef BRIGADE_CHECKPOINT_TENSOR_SUMS_H_
#define BRIGADE_CHECKPOINT_TENSOR_SUMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "brigade/checkpoint/layout.h"
#include "brigade/collectives/communicator.h"

namespace brigade::checkpoint {

// The CRC-32C of tensors whose bytes come in any order, and on several ranks.
class TensorSums {
 public:
  explicit TensorSums(const Layout& layout) : layout_(layout), sums_(layout.tensors().size()) {}

  // `block` lies in the tensor from this byte on. Each byte of a tensor is added once, by one rank.
  // Returns the block's own sum.
  uint32_t Add(int tensor, int64_t offset, absl::string_view block);
  void Clear() { sums_.assign(sums_.size(), 0); }

  // Of all tensors, from what all ranks have added. A call of all ranks, on the host; errors are
  // the communicator's.
  absl::StatusOr<std::vector<uint32_t>> Gather(collectives::Communicator& communicator) const;

 private:
  const Layout& layout_;
  // The sum of a whole is the exclusive or of those of its blocks, each followed by as many zeros
  // as there are bytes behind it.
  std::vector<uint32_t> sums_;
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_TENSOR_SUMS_H_
