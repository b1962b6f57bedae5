#ifndef BRIGADE_ZERO_PLAN_TRAFFIC_H_
#define BRIGADE_ZERO_PLAN_TRAFFIC_H_

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero {

// Payload bytes that a rank has sent, by purpose. Their sum is what its communicator counts, and
// the outer ones, where there are others.
struct Traffic {
  int64_t gradients = 0;
  int64_t parameters = 0;
  // The statistics of each step.
  int64_t scalars = 0;
  // Gradients, to the other group that has the same tied parameters.
  int64_t tied = 0;
  // Sums of gradients, to the ranks that have the same slices in other groups.
  int64_t between = 0;
  // Weights, to the ranks that have second slices.
  int64_t near = 0;
  // Sums of a node's gradients, as codes, to the ranks that have this one's place in other nodes.
  int64_t nodes = 0;
  // The plan's check, the initial broadcast, export and import.
  int64_t setup = 0;

  int64_t total() const {
    return gradients + parameters + scalars + tied + between + near + nodes + setup;
  }
};

// What this rank of the communicator sends in each step: every bucket is reduced once per
// micro-batch, or at the boundary once, and gathered where the stage says, by the algorithms that
// the communicator takes. With Y bytes of weights, N ranks and one micro-batch that is 2 (N-1)/N Y
// in stages 0 to 2; 3 (N-1)/N Y in stage 3, where tied weights count for each use and persistent
// ones once. kHalvingDoubling sends more where N is no power of two, kFp32Partials sends 16-bit
// gradients in fp32, and kDoubleTree and kParameterServer sum by all-reduces, 2 (N-1)/N in every
// stage. With a communication_dtype gradients are sent in that type; the ranks agree on a scale for
// float16 by an all-reduce of 4 bytes for each bucket, which counts as gradients. With runs stage 3
// gathers a
// chunk's weights once in each of its runs, whatever the number of micro-batches. With tied_apart
// each further user of tied parameters has gradients of its own, which are reduced as the others.
// What is tied outside crosses to the other group once a step, in the type of the final gradient:
// this rank's slice, in stage 0 the bucket. With m groups of g ranks N is g above, but for the
// statistics, and each rank sends 2 (m-1)/m of its slices of the gradients to the other groups,
// once a step, in the type of the final gradient or in communication_dtype. With hpz_ranks h the
// gathers of backward passes, and with runs those of all but a chunk's first run, go to the near
// ranks: (h-1)/h Y for each. With quantized_weights a gather of 16-bit weights sends codes, 0.51 or
// 0.26 of Y, and with quantized_gradients so does each sum of gradients, N - 1 messages of a slice
// (QuantBytes) for each bucket; with node_ranks k of N/k nodes (k - 1) N/k messages inside a node,
// as gradients, and N/k - 1 between nodes. What stage 0 gathers, and sums between groups, are no
// codes. With gradient_compression a step that exchanges sends of each bucket's gradients, in each
// direction, a message of 1/8 byte for each element of a rank's part and 64 bytes at most beside
// (OneBitCallsOf), in place of these sums, whatever the number of micro-batches; with node_ranks k
// that is the message of N/k ranks between nodes, of a k-th of the elements, and inside a node
// (k - 1)/k of these in fp32 in each direction, as gradients; with kPowerSgd
// the two sums in fp32 of PowerSgdCallsOf, of factors and of parameters without; with kTopK
// TopKCallOf's messages of 8 bytes for each element that crosses, to all others. With m groups that
// is between m ranks, of what parameters have in this rank's slices, as `between`, beside the sums
// inside the groups; and stage 0 gathers the slices in fp32.
// With Muon the updates of matrices that are cut cross in fp32 to the rank that makes them
// orthogonal, and back, as gradients: twice what other ranks' slices have of them (MatrixLayout).
// With Adafactor the gradients of tensors that are cut cross to the rank that makes their factors,
// with scale_parameter the masters too, and what is made of them, a number a row and column, back,
// all as gradients (FactorLayout).
// Errors of Communicator::Resolve.
// Source: Rajbhandari et al. 2020 (arXiv 1910.02054), section 7.
//
// `outer`: the groups that ZeroOptimizer::Create takes. `tried`: the steps tried before this one,
// where these differ; by default one of those that follow the last change.
absl::StatusOr<Traffic> TrafficOfStep(const Plan& plan, const ZeroOptions& options,
                                      collectives::Communicator& communicator,
                                      const OuterGroups& outer = {},
                                      int64_t tried = std::numeric_limits<int64_t>::max());

// What this rank sends at once when it has changed a bucket's master between two steps
// (ZeroOptimizer::MastersChanged): the gather of weights that stay whole, in stages 1 and 2; else
// 0. Errors of Communicator::Resolve.
absl::StatusOr<int64_t> TrafficOfChangedMaster(const Plan& plan, const ZeroOptions& options,
                                               const Bucket& bucket,
                                               collectives::Communicator& communicator);

}  // namespace brigade::zero

#endif  // BRIGADE_ZERO_PLAN_TRAFFIC_H_
