#include "brigade/examples/gpt/job.h"

namespace brigade::gpt {

PassShape ShapeOf(const ModelOptions& model, const train::TrainConfig& config,
                  const parallel::Coordinates& at) {
  return {.model = model,
          .batch = config.batch.train_micro_batch_size_per_gpu,
          .dtype = config.zero.dtype,
          .tensor_ranks = config.grid.tensor,
          .tensor_rank = at.tensor,
          .context_ranks = config.grid.context,
          .context_rank = at.context,
          .context_exchange = config.context_exchange,
          .keep_gathered = config.keep_gathered,
          .tensor_overlap = config.tensor_overlap,
          .sum_wire = config.sum_wire};
}

}  // namespace brigade::gpt
