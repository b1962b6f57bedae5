#ifndef BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_CPU_H_
#define BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_CPU_H_

#include <cstdint>

#include "brigade/kernels/adafactor/adafactor_math.h"
#include "brigade/kernels/step_control/step_state.h"
#include "brigade/kernels/update_types.h"

namespace brigade::kernels {

// What each thread of the calls in adafactor.h does, in the calling thread and without checks of
// the arguments. Made for the threads that a program has. Grad is float, Half or BFloat16; Copy is
// Half, BFloat16 or NoCopy. Those that return an error touch no memory of the tensor if the step's
// values are missing.

// Whether the step's values are there. The parts below do not look: to be asked before them.
[[nodiscard]] inline StepError AdafactorStepError(const AdafactorParameters& parameters,
                                                  int32_t group) {
  return FindErrorOfAnyStep<AdafactorPolicy>(parameters, group);
}

// AdafactorFactors in parts, each of which begins when all of the one before has ended, of a tensor
// that is not empty, in a step that has no error and is not skipped. Sums of the strips of tiles
// [begin, end), of AdafactorGrid::down; of what is no matrix its factors, too.
template <typename Grad>
void AdafactorSumTiles(const AdafactorTensor& tensor, const AdafactorParameters& parameters,
                       int64_t begin, int64_t end);
// Of a matrix: rows [begin, end), then columns [begin, end).
void AdafactorRows(const AdafactorTensor& tensor, const AdafactorParameters& parameters,
                   int64_t begin, int64_t end);
void AdafactorColumns(const AdafactorTensor& tensor, const AdafactorParameters& parameters,
                      int64_t begin, int64_t end);
// Of a matrix: the scales of its rows.
void AdafactorMeans(const AdafactorTensor& tensor);
// Of a matrix: sums of updates of the strips of tiles [begin, end).
template <typename Grad>
void AdafactorUpdateTiles(const AdafactorTensor& tensor, const AdafactorParameters& parameters,
                          int64_t begin, int64_t end);
// The rate, and the factor on the update.
void AdafactorNumbers(const AdafactorTensor& tensor, const AdafactorParameters& parameters);

// All of these, in turn, if the step has no error and is not skipped.
template <typename Grad>
[[nodiscard]] StepError AdafactorFactorsOf(const AdafactorTensor& tensor,
                                           const AdafactorParameters& parameters);

// The elements [begin, end) of a segment: threads may take any ranges that do not overlap; no cut
// changes a bit.
template <typename Grad, typename Copy>
[[nodiscard]] StepError AdafactorParamRange(const AdafactorSegment& segment,
                                            const AdafactorParameters& parameters, int64_t begin,
                                            int64_t end);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ADAFACTOR_ADAFACTOR_CPU_H_
