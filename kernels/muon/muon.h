#ifndef BRIGADE_KERNELS_MUON_MUON_H_
#define BRIGADE_KERNELS_MUON_MUON_H_

// The three calls of a step of Muon. Momenta and parameters may be pieces of matrices; between them
// whoever has all of a matrix makes its update orthogonal:
//
//   MuonMomentum        m and the update from the gradient
//   MuonOrthogonalize   updates, of whole matrices
//   MuonParams          parameters

#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "brigade/device/stream.h"
#include "brigade/kernels/muon/muon_math.h"
#include "brigade/kernels/muon/muon_parameters.h"
#include "brigade/kernels/step_control/one_step.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/precision/dtype.h"

namespace brigade::kernels {

struct MuonOptions {
  // Of MuonMomentum: float32, float16 or bfloat16.
  precision::DType grad_dtype = precision::DType::kFloat32;
  // Of MuonParams: float16 or bfloat16; without a value there is no copy.
  std::optional<precision::DType> copy_dtype;
  // At most kMaxMuonGroups groups.
  absl::Span<const MuonGroup> groups;
  // Device memory, read when the work runs. Both are written by StepControl.
  // The momentum reads grad_multiplier and skip, parameters skip.
  const StepState* state = nullptr;
  // [groups.size()]; parameters read lr.
  const GroupStep* group_steps = nullptr;
  // Instead of both, for at most kMaxOneStepGroups groups: a step whose numbers the host knows.
  std::optional<OneStep> one_step = {};
};

// The momentum, and the update that is to become orthogonal, of a list of segments:
//   g = grad * grad_multiplier
//   m = momentum m + (1 - momentum) g
//   update = nesterov ? momentum m + (1 - momentum) g : m
// With the skip flag set, both keep every bit.
//
// Shapes       Any number of segments of any size, empty ones included; any element-aligned
//              address.
// Precision    State and arithmetic fp32, each operation rounded once.
// Traffic      16 bytes per element, plus the gradient's.
// Aliasing     None: anything written may not overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              and the options may go when the call returns.
// Determinism  Same bits on every device, for any number of threads, SIMD target and cut into
//              segments, payloads of NaN aside.
// Errors       Those of Lion (kernels/lion/lion.h).
absl::Status MuonMomentum(absl::Span<const MuonMomentumSegment> segments,
                          const MuonOptions& options, device::Stream& stream);

struct MuonOrthogonalizeOptions {
  // 1 to kMaxMuonSteps.
  int steps = 5;
  MuonCoefficients coefficients = {};
  // What norms are at least: positive, finite.
  double eps = 1e-7;
};

// Newton and Schulz's iteration of each matrix X, in place: X / max(norm(X), eps), Frobenius's
// norm; then `steps` times X = a X + (b G + c G^2) X with G = X X^T. Its singular values go to what
// is near 1: with the default coefficients and 5 steps 0.7 to 1.2, but for those below a
// thousandth of the norm. Matrices with more rows than columns take G = X^T X, which is the same.
//
// Shapes       Any number of matrices of any shapes; one with an extent of 0 is left out. Any
//              element-aligned address, workspaces to 8 bytes.
// Precision    fp32, sums of fma in ascending order; the norm double.
// Traffic      2 steps (2 rows columns n + n^3) fma, n the smaller extent; caches decide what of
//              that is traffic.
// Aliasing     None: no matrix or workspace may overlap anything else.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The list
//              may go when the call returns.
// Determinism  Same bits on every device, for any number of threads and SIMD target, payloads of
//              NaN aside; the order of sums is in muon_math.h.
// Non-finite   NaN and infinity spread over their matrix.
// Errors       InvalidArgument naming segment, argument and value, before anything is enqueued:
//              null with elements, negative extents, misaligned address, overlap, memory known as
//              another device's, options out of range.
absl::Status MuonOrthogonalize(absl::Span<const MuonMatrix> matrices,
                               const MuonOrthogonalizeOptions& options, device::Stream& stream);

// Parameters of a list of segments, by their updates:
//   r = lr * rate
//   param = (1 - r weight_decay) param - r * scale * update
// With the skip flag set, param and the copy keep every bit.
//
// Traffic      12 bytes per element, plus the copy's.
//
// In all else like MuonMomentum; the copy rounds to nearest even.
absl::Status MuonParams(absl::Span<const MuonParamSegment> segments, const MuonOptions& options,
                        device::Stream& stream);

// The options as the raw launchers (muon_cuda.h) take them; they must be valid. The same without
// Abseil: muon_parameters.h.
MuonParameters MakeMuonParameters(const MuonOptions& options);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_MUON_MUON_H_
