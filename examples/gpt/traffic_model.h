#ifndef BRIGADE_EXAMPLES_GPT_TRAFFIC_MODEL_H_
#define BRIGADE_EXAMPLES_GPT_TRAFFIC_MODEL_H_

#include <cstdint>

#include "brigade/zero/options.h"
#include "brigade/zero/plan.h"

namespace brigade::gpt {

// Bytes of gradients and weights that a rank sends in a step, by formula: with Y the bytes of all weights with
// padding, N ranks and one micro-batch 2 (N-1)/N Y in stages 0 to 2; in stage 3 (N-1)/N Y of gradients and, for each
// pass, as much of weights, tied ones for each use. Source: Rajbhandari et al. 2020, section 7.
int64_t TrafficOfStep(const zero::Plan& plan, const zero::ZeroOptions& options);

// Y.
int64_t PaddedBytes(const zero::Plan& plan);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRAFFIC_MODEL_H_
