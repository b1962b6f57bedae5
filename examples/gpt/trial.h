#ifndef BRIGADE_EXAMPLES_GPT_TRIAL_H_
#define BRIGADE_EXAMPLES_GPT_TRIAL_H_

// What the passes of a model take on this machine, found out before the training.

#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/examples/gpt/activations.h"
#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/pass_collectives.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/train/job.h"
#include "brigade/train/times/recorder.h"

namespace brigade::gpt {

// Seconds, from passes over a micro-batch of the corpus' first texts by a model of one block, which
// ranks share as they will share the model; a call of all ranks of the groups. With
// each of two save options, between which it makes everything again that a block may drop, one that
// does not count, and some that do. Each part has its median, in units of the pass that it is of:
// the whole pass slows down with it where the machine has other work.
//
// Memory       Weights, gradients and all activations of one block, of embedding and head. Free
//              again when the call returns. The training's own are not touched.
// Stream       Waits for `compute`, of `context`, whose tracer is the recorder's.
// Errors       Those of Transformer; FailedPrecondition if the recorder has not seen the passes.
//              The rank that gets one ends the groups, in which others may wait for it.
absl::StatusOr<PassCosts> MeasurePasses(const train::Job& job, const Corpus& corpus,
                                        const PassShape& shape, const PassGroups& groups,
                                        device::Context& context, device::Stream& compute,
                                        train::Recorder& recorder);

// Rank 0's, by which all ranks make the same plan. A call of all ranks, on the host.
absl::StatusOr<PassCosts> AgreeOnCosts(const PassCosts& mine,
                                       collectives::Communicator& communicator);

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_TRIAL_H_
