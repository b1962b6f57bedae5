#ifndef BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_CPU_H_
#define BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_CPU_H_

#include <cstdint>

#include "brigade/kernels/one_bit_lamb/one_bit_lamb_math.h"
#include "brigade/kernels/step_control/step_state.h"

namespace brigade::kernels {

// The passes of one_bit_lamb.h on one tensor, in the calling thread and without checks of the
// arguments. Made for the threads that a program has; the order of passes is said there. Those that
// a whole tensor needs the sums of all of its tiles for are functions of one_bit_lamb_math.h:
//
//   ratio = OneBitLambRatio(constants, ratio, LambTrustOf(tensor, parameters, sums));
//   scale = OneBitLambScale(sum of the tensors' root mean squares, how many, this one's);
//   factor = OneBitLambFactor(constants, decay, OneBitLambSumsOf(tensor, sums), factor);
//
// Ranges  Of whole tiles: `begin` is a multiple of kLambTile, and `end` is one or the segment's
//         size. Threads may take any such ranges.
// Sums    Of tile t of a segment: sums[segment.first_tile + t].
// Errors  As those of lamb_cpu.h.
// Types   Instantiated for float, Half and BFloat16.

void OneBitLambFreezeRange(const OneBitLambSegment& segment, int64_t begin, int64_t end,
                           OneBitLambSums* sums);

// `scale`, here and below: of the tensor's numbers.
template <typename Grad>
[[nodiscard]] StepError OneBitLambSendRange(const OneBitLambMessage& message,
                                            const LambParameters& parameters, float scale,
                                            int64_t begin, int64_t end);

void OneBitLambReceiveRange(const OneBitLambMessage& message, float scale, int64_t begin,
                            int64_t end);

[[nodiscard]] StepError OneBitLambMomentsRange(const OneBitLambSegment& segment,
                                               const LambParameters& parameters, int64_t begin,
                                               int64_t end, OneBitLambSums* sums);

// Of all tiles of a tensor.
OneBitLambSums OneBitLambSumsOf(const LambTensor& tensor, const OneBitLambSums* sums);
// Of its momentum when moments are frozen; 0 of a tensor without elements.
double OneBitLambRootMeanSquare(const LambTensor& tensor, int64_t size, const OneBitLambSums* sums);

}  // namespace brigade::kernels

#endif  // BRIGADE_KERNELS_ONE_BIT_LAMB_ONE_BIT_LAMB_CPU_H_
