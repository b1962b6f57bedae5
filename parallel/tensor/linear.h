#ifndef BRIGADE_PARALLEL_TENSOR_LINEAR_H_
#define BRIGADE_PARALLEL_TENSOR_LINEAR_H_

// Linear layers that are cut over tensor shards (parallel/shard.h). By columns: each shard has some
// of the outputs, of all inputs; then by rows: each has some of the inputs, and outputs are sums
// over shards. Between the two nothing is exchanged.
//
// With one shard both are nn::Linear, with its bits, of all rows or of each piece of them.
//
// Overlap      Products beside which ranks exchange rows are cut as `sums` says (RowPieces), each
//              piece a product of its own: with SumPart::kOwn those of gathered rows, y of columns
//              and dx of rows, which begin when the first piece is there; and those that end in a
//              sum, y of rows and dx of columns, whose pieces are summed while the next one, and
//              behind them the weight's gradient, is multiplied. Gradients of weights are whole
//              products. What `sums` says of overlap changes no bit and no call, only streams.
// Source       Shoeybi et al. 2019 (arXiv 1909.08053).

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/device/stream.h"
#include "brigade/nn/blas.h"
#include "brigade/nn/gradient.h"
#include "brigade/nn/linear.h"
#include "brigade/nn/workspace.h"
#include "brigade/parallel/tensor/shard_sums.h"

namespace brigade::parallel {

// The outputs of this rank's shards: y[s] = x weight[s]^T, and + bias[s] unless that is null.
//
// `shard` is one shard's product: x [rows, inputs], all rows, which may still be on their way from
// ShardSums::GatherRows; outputs those of one shard. With S local shards weight [S, outputs,
// inputs], bias [S, outputs], y [S, rows, outputs].
//
// Traffic      None.
// Otherwise    nn::Linear of each shard.
absl::Status ColumnLinear(const nn::LinearInput& shard, const void* bias, void* y, ShardSums& sums,
                          nn::Blas& blas, device::Stream& stream);

// From dy, of the shape of y: dweight and dbias of this rank's shards, and dx [rows, inputs], the
// sum over all shards by `sums` (ShardSums::Sum: a call of all ranks; with SumPart::kOwn the own
// part of the rows). Those without data are left out. x may still be on its way, as above.
//
// Aliasing     None: dx is on its way while x is read.
absl::Status ColumnLinearBackward(const nn::LinearInput& shard, const void* dy, void* dx,
                                  nn::Gradient dweight, nn::Gradient dbias, ShardSums& sums,
                                  nn::Blas& blas, const nn::Workspace& workspace,
                                  device::Stream& stream);

// y = the sum over all shards of x[s] weight[s]^T, without a bias, which comes once, after the sum:
// nn::AddBias.
//
// `shard` is one shard's product: inputs those of one shard. With S local shards x [S, rows,
// inputs], weight [S, outputs, inputs]; y [rows, outputs], or with SumPart::kOwn the own part of
// the rows.
//
// Traffic      That of ShardSums::Sum, of rows * outputs elements: a call of all ranks.
absl::Status RowLinear(const nn::LinearInput& shard, void* y, ShardSums& sums, nn::Blas& blas,
                       device::Stream& stream);

// From dy [rows, outputs], all rows, which may still be on their way from ShardSums::GatherRows: dx
// and dweight of this rank's shards, of the shapes of x and weight. Those without data are left
// out. The bias's gradient is that of nn::BiasBackward, over the rows that have it added.
//
// Traffic      None.
// Aliasing     dx may be x where `sums` does not cut gathered rows into pieces
//              (ShardSums::GatheredPiecesOf): it is then written last. In pieces it is first.
absl::Status RowLinearBackward(const nn::LinearInput& shard, const void* dy, void* dx,
                               nn::Gradient dweight, ShardSums& sums, nn::Blas& blas,
                               const nn::Workspace& workspace, device::Stream& stream);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_TENSOR_LINEAR_H_
