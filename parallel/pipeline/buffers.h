#ifndef BRIGADE_PARALLEL_PIPELINE_BUFFERS_H_
#define BRIGADE_PARALLEL_PIPELINE_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "brigade/parallel/pipeline/item.h"
#include "brigade/parallel/pipeline/list_index.h"

namespace brigade::parallel {

// Numbers of buffers, one for each sort. Each buffer is of one chunk and one micro-batch.
struct StageBuffers {
  // What a forward pass keeps for its backward pass: from the forward pass to the backward pass, or
  // to the gradient of the weights.
  int64_t activations = 0;
  // What a chunk reads: from where it is received, or computed by another chunk of the stage, until
  // the chunk's activations are free. The model's first part reads none.
  int64_t inputs = 0;
  // From where they are computed until they are sent.
  int64_t outputs = 0;
  // Gradients of a chunk's outputs: from where they are received, or computed by another chunk of
  // the stage, to the backward pass, or to the gradient of the weights. The model's last part has
  // none.
  int64_t output_gradients = 0;
  // Gradients of a chunk's inputs: from where they are computed until they are sent.
  int64_t input_gradients = 0;
  // What the gradient of the inputs leaves to that of the weights: from the one to the other.
  int64_t deferred = 0;

  friend bool operator==(const StageBuffers&, const StageBuffers&) = default;
};

// The buffers of one chunk's passes for one micro-batch, each by its number among those of its
// sort.
struct PassBuffers {
  // It needs none: nothing is sent, or received, or put off.
  static constexpr int kNone = -1;

  int activations = kNone;
  int inputs = kNone;
  int outputs = kNone;
  int output_gradients = kNone;
  int input_gradients = kNone;
  int deferred = kNone;
};

// Which buffers the passes of a stage use, run in the order of its list: each buffer passes from
// one micro-batch to another when the list has used it for the last time.
class BufferPlan {
 public:
  // Of a stage whose list check.h has accepted. `spare`: of what is sent there is so much more than
  // the list needs, so that a computation does not wait until what was computed before it is sent.
  BufferPlan(const PipelineSchedule& schedule, int stage, const ListIndex& index, int spare = 0);

  const StageBuffers& counts() const { return counts_; }
  const PassBuffers& Of(int chunk, int micro_batch) const {
    return passes_[static_cast<size_t>(chunk) * static_cast<size_t>(micro_batches_) +
                   static_cast<size_t>(micro_batch)];
  }

 private:
  int micro_batches_;
  StageBuffers counts_;
  // By chunk, then by micro-batch.
  std::vector<PassBuffers> passes_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PIPELINE_BUFFERS_H_
