#ifndef BRIGADE_KERNELS_MUON_MUON_CUDA_H_
#define BRIGADE_KERNELS_MUON_MUON_CUDA_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "brigade/kernels/muon/muon_math.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// The calls of muon.h on `stream`, without checks of the arguments. Lists and parameters, which
// muon_parameters.h fills, may go when a call returns; everything they point to is device memory.
//
// Errors  Of momenta and parameters cudaErrorInvalidValue, with nothing launched, if the parameters
//         name no step: one of state and group_steps is null, or both are and step is below 1, or
//         there are no numbers for a segment's group. The kernels end with an error of the stream
//         if what state and group_steps point to was not filled (StepError, step_state.h).

// One launch for each 510 non-empty segments. Grad is float, Half or BFloat16.
template <typename Grad>
cudaError_t LaunchMuonMomentum(const MuonMomentumSegment* segments, int64_t count,
                               const MuonParameters& parameters, cudaStream_t stream);

// Three launches, and three for each step, for each 300 matrices.
cudaError_t LaunchMuonOrthogonalize(const MuonMatrix* matrices, int64_t count, int steps,
                                    const MuonCoefficients& coefficients, double eps,
                                    cudaStream_t stream);

// One launch for each 510 non-empty segments. Copy is Half, BFloat16 or NoCopy.
template <typename Copy>
cudaError_t LaunchMuonParams(const MuonParamSegment* segments, int64_t count,
                             const MuonParameters& parameters, cudaStream_t stream);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_MUON_MUON_CUDA_H_
