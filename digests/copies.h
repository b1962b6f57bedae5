#ifndef BRIGADE_DIGESTS_COPIES_H_
#define BRIGADE_DIGESTS_COPIES_H_

// What several ranks must have alike, and who has it otherwise: wrong bits that no check of the
// hardware has found (silent data corruption).

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "brigade/digests/step_digests.h"
#include "brigade/digests/tensor_map.h"

namespace brigade::digests {

// Ranks that have one copy of something together, each a part: one rank, or one group that shares a
// state.
using CopyHolders = std::vector<int>;

// The sums of the digests of each copy's holders must be the same.
struct Comparison {
  DigestKind kind = DigestKind::kWeights;
  int tensor = 0;
  // Two at least.
  std::vector<CopyHolders> copies;
};

// All that `shares`, by rank, hold more than once, of each tensor:
//   weights      where ranks have them whole (stages 0 to 2), each rank's copy, its shards of a
//                tensor that is cut; in stage 3 the slices of groups that share a state, rank for
//                rank; and what tensor ranks or stages of a pipeline have alike;
//   gradients    the summed slices of such groups, and of tensor ranks.
// Narrow comparisons, of single ranks, come before wide ones, gradients before weights.
std::vector<Comparison> ComparisonsOf(const std::vector<TensorName>& tensors,
                                      const std::vector<RankShare>& shares);

// The share of all ranks' weights, by elements, of which a second copy exists: 0 to 1.
double Covered(const std::vector<TensorName>& tensors, const std::vector<RankShare>& shares,
               const std::vector<Comparison>& comparisons);

// DataLoss naming step, unit, tensor and the ranks whose copy differs from that which most have;
// with two copies, or as many of each, that none can be told from the other. `step` counts from 1.
// Of a step that was skipped, which may have NaN among its gradients, weights alone are compared.
absl::Status CheckCopies(int64_t step, bool skipped, const std::vector<TensorName>& tensors,
                         const std::vector<Comparison>& comparisons, const DigestTable& table);

// "0123456789abcdef0123456789abcdef"
std::string ToHex(const kernels::TensorDigest& digest);

}  // namespace brigade::digests

#endif  // BRIGADE_DIGESTS_COPIES_H_
