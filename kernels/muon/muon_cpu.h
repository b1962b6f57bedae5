#ifndef BRIGADE_KERNELS_MUON_MUON_CPU_H_
#define BRIGADE_KERNELS_MUON_MUON_CPU_H_

#include <cstdint>

#include "brigade/kernels/muon/muon_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// What each thread of the calls in muon.h does, in the calling thread and without checks of the
// arguments. Made for the threads that a program has.

// The elements [begin, end) of a segment: threads may take any ranges that do not overlap; no cut
// changes a bit. Touches no memory of the segment if the step's values are missing: the parameters
// (muon_parameters.h) name none, or what they point to was not filled. Grad is float, Half or
// BFloat16; Copy is Half, BFloat16 or NoCopy.
template <typename Grad>
[[nodiscard]] StepError MuonMomentumRange(const MuonMomentumSegment& segment,
                                          const MuonParameters& parameters, int64_t begin,
                                          int64_t end);
template <typename Copy>
[[nodiscard]] StepError MuonParamRange(const MuonParamSegment& segment,
                                       const MuonParameters& parameters, int64_t begin,
                                       int64_t end);

// MuonOrthogonalize in parts, each of which begins when all of the one before has ended. The sums
// of the tiles [begin, end), of MuonTiles.
void MuonSumTiles(const MuonMatrix& matrix, int64_t begin, int64_t end);
// Rows [begin, end) of the workspace's matrix, of MuonWorkspace::tall: the matrix over its norm.
void MuonNormalizeRows(const MuonMatrix& matrix, double eps, int64_t begin, int64_t end);
// For each step the three products of MuonProductOf, of which a thread makes the blocks [begin,
// end), of MuonBlocks.
int64_t MuonBlocks(const MuonProduct& product);
void MuonProductBlocks(const MuonProduct& product, int64_t begin, int64_t end);
// Rows [begin, end) of the matrix, of its own rows, from the workspace's; `swapped` as it is behind
// the last step: set after an odd number of them.
void MuonRestoreRows(const MuonMatrix& matrix, bool swapped, int64_t begin, int64_t end);

// All of these, in turn, of a matrix that is not empty.
void MuonOrthogonalizeMatrix(const MuonMatrix& matrix, int steps,
                             const MuonCoefficients& coefficients, double eps);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_MUON_MUON_CPU_H_
