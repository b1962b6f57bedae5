#ifndef BRIGADE_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_
#define BRIGADE_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/collectives/engines/call_order.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/event.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

struct HierarchicalOptions {
  Algorithm inside = Algorithm::kDirect;   // a node
  Algorithm between = Algorithm::kDirect;  // nodes
};

// Collectives in two levels, for nodes whose ranks reach each other faster than those of other nodes: between nodes each
// rank exchanges only its share with its counterparts, so that little crosses the slow links. An all-reduce is a
// reduce-scatter inside nodes, an all-reduce of each share between them, and an all-gather inside. Two communicators
// do it, made by two Splits.
//
// Order        That of Communicator; calls of the two levels must not be mixed with others of the same ranks.
// Arrays       Those of Communicator, with `slice` in place of `rank`: a rank gets slice slice_of_rank(rank) of a
//              reduce-scatter, and gives that of an all-gather. In place: output == input + slice * count, or
//              input == output + slice * count.
// Precision    That of the two levels' algorithms, one after the other: with kDirect 16-bit types are rounded twice. All
//              ranks get the same bits.
// Traffic      With g ranks a node, m nodes and n elements of which g * 64 is a divisor, a rank sends of an all-reduce
//              2 (g-1)/g n inside and 2 (m-1)/m n/g between: from a node 2 (m-1)/m n, where a ring that does not know
//              of nodes sends up to g times as much. The n mod (g * 64) elements that are left take part
//              in both levels whole.
// Memory       A reduce-scatter has m * count elements of scratch, of purpose communication; it only grows.
// Errors       Those of Communicator; an error of one level ends both, on all ranks of this rank's node and its
//              counterparts, and by them on all others.
// Model        Route::kHierarchical (route.h) is this with kRing in both levels; kDirect sends the same bytes in fewer steps.
// Source       Cho et al., BlueConnect, 2019; two levels of it.
class Hierarchical {
 public:
  // A call of all ranks of `world`, on the host. `node`: any number that this rank's node has and no other.
  // InvalidArgument on all ranks if nodes differ in their number of ranks: shares would have no counterparts.
  static absl::StatusOr<std::unique_ptr<Hierarchical>> Create(Communicator& world, int64_t node,
                                                              const HierarchicalOptions& options,
                                                              device::Context& context);

  // The algorithm of `options` is not used.
  absl::Status AllReduce(const void* input, void* output, int64_t count,
                         const ReduceOptions& options, device::Stream& stream);
  absl::Status ReduceScatter(const void* input, void* output, int64_t count,
                             const ReduceOptions& options, device::Stream& stream);
  absl::Status AllGather(const void* input, void* output, int64_t count, const MoveOptions& options,
                         device::Stream& stream);

  // Of a rank of the world.
  int slice_of_rank(int rank) const { return slices_[static_cast<size_t>(rank)]; }

  // Of this rank's node, and of this rank's counterparts on all nodes. To count their bytes, and to abort.
  Communicator& inside() { return *inside_; }
  Communicator& between() { return *between_; }

 private:
  Hierarchical(const HierarchicalOptions& options, std::vector<int> slices,
               std::unique_ptr<Communicator> inside, std::unique_ptr<Communicator> between,
               std::unique_ptr<device::Event> last, device::Context& context);

  int slice() const;
  absl::Status Check(CollectiveKind kind, const void* input, void* output, int64_t count,
                     precision::DType dtype, kernels::ReduceOp op, device::Stream& stream) const;
  // Runs a checked call on `stream`, after the one before. An error of one level ends the other.
  absl::Status Run(device::Stream& stream, absl::FunctionRef<absl::Status()> call);

  const HierarchicalOptions options_;
  const std::vector<int> slices_;  // [rank]
  const std::unique_ptr<Communicator> inside_, between_;
  device::Context& context_;
  CallOrder order_;
  device::Buffer scratch_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_
