#ifndef BRIGADE_PARALLEL_TENSOR_CROSS_ENTROPY_H_
#define BRIGADE_PARALLEL_TENSOR_CROSS_ENTROPY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "brigade/collectives/communicator.h"
#include "brigade/device/buffer.h"
#include "brigade/device/context.h"
#include "brigade/device/stream.h"
#include "brigade/nn/token_ids.h"
#include "brigade/parallel/shard.h"
#include "brigade/precision/dtype.h"

namespace brigade::parallel {

struct VocabularyCrossEntropyOptions {
  TensorShards shards = {};
  precision::DType dtype = precision::DType::kFloat32;
  // Of a call, at most.
  int64_t rows = 0;
};

// nn::CrossEntropy of logits whose vocabulary is cut over tensor shards: no rank has a whole row.
// Of each row a rank tells the others three numbers: its largest logit, the sum of e^(z - max), and
// the target's logit.
//
// Precision    As nn::CrossEntropy, whose bits one shard gives. Parts of rows are joined as an
//              aligned binary tree over the model's shards: on a CPU the number of ranks changes
//              no bit. (Where ranks are no power of two, those behind the last subtree come last.)
// Memory       Bytes, scratch, and the communicator's workspace; at Create.
// Traffic      One all-gather: a rank sends 3 (t-1) floats (double for float64) a row; backward
//              none.
// Stream       Enqueued as the communicator's calls are; allocates nothing. All calls on one
//              stream.
class VocabularyCrossEntropy {
 public:
  // `ranks`, with whose size and rank options.shards must agree, must outlive it; null for one
  // rank.
  //
  // Errors       InvalidArgument naming what does not fit; those of Context::Allocate and
  //              Communicator::Reserve.
  static absl::StatusOr<std::unique_ptr<VocabularyCrossEntropy>> Create(
      const VocabularyCrossEntropyOptions& options, collectives::Communicator* ranks,
      device::Context& context);

  static int64_t Bytes(const VocabularyCrossEntropyOptions& options);
  // What Forward leaves to Backward, in memory of the caller, who may have several such passes in
  // flight.
  static int64_t StatisticsBytes(precision::DType dtype, int64_t rows);
  // What the ranks exchange for so many rows.
  static collectives::CollectiveSignature SignatureOf(const VocabularyCrossEntropyOptions& options,
                                                      int64_t rows);

  // losses [rows], the same on all ranks, from logits [local shards, rows, vocabulary / shards];
  // writes the statistics. `window`: VocabularyWindow of the ids (embedding.h). A call of all
  // ranks.
  absl::Status Forward(const nn::TokenIds& window, const void* logits, void* statistics,
                       void* losses, device::Stream& stream);

  // In place, with the statistics of Forward of the same ids and logits: these become the gradient
  // of seed * (mean of losses), or of ids with labels of seed * (their sum): TokenIds::divisor.
  absl::Status Backward(const nn::TokenIds& window, void* logits, const void* statistics,
                        const float* seed, device::Stream& stream);

 private:
  VocabularyCrossEntropy(const VocabularyCrossEntropyOptions& options,
                         collectives::Communicator* ranks, device::Buffer memory);

  absl::Status CheckRows(const nn::TokenIds& window) const;

  const VocabularyCrossEntropyOptions options_;
  collectives::Communicator* const ranks_;
  // The parts of all ranks, of which this one writes its own.
  const device::Buffer memory_;
};

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_CROSS_ENTROPY_H_
