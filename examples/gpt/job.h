#ifndef BRIGADE_EXAMPLES_GPT_JOB_H_
#define BRIGADE_EXAMPLES_GPT_JOB_H_

#include "brigade/examples/gpt/corpus.h"
#include "brigade/examples/gpt/model.h"
#include "brigade/examples/gpt/pass_shape.h"
#include "brigade/parallel/grid.h"
#include "brigade/train/config/config.h"
#include "brigade/train/job.h"

namespace brigade::gpt {

// What to train, and how; the same on all ranks.
struct Job : train::Job {
  ModelOptions model;
  Corpus corpus;
};

// Of a rank's passes.
PassShape ShapeOf(const ModelOptions& model, const train::TrainConfig& config,
                  const parallel::Coordinates& at = {});
inline PassShape ShapeOf(const Job& job, const parallel::Coordinates& at = {}) {
  return ShapeOf(job.model, job.config, at);
}

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_JOB_H_
