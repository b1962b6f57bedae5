#ifndef BRIGADE_ZERO_PLAN_EXCHANGE_LAYOUT_H_
#define BRIGADE_ZERO_PLAN_EXCHANGE_LAYOUT_H_

// What is exchanged of a bucket, and which errors that leaves, by method: what GradientExchange
// allocates and sends, and what the models of memory and traffic count.

#include <cstdint>
#include <vector>

#include "brigade/collectives/compressed/power_sgd_all_reduce.h"
#include "brigade/zero/options.h"
#include "brigade/zero/plan/plan.h"

namespace brigade::zero::internal {

// Of options that have exchanges.
inline GradientCompression MethodOf(const ZeroOptions& options) {
  return options.averages_moments() ? GradientCompression::kOneBit
                                    : options.gradient_compression->method;
}

// Elements [in_bucket, + size) of a bucket are saved of [at, + size) of an array of errors.
struct ErrorPiece {
  int64_t in_bucket = 0;
  int64_t at = 0;
  int64_t size = 0;
};

// An array of errors in fp32, of one bucket.
struct ErrorArray {
  // The elements that a rank has. Of several parts, all of them as long and one behind the other,
  // rank r has part r % parts.
  int64_t size = 0;
  int parts = 1;
  // Of all parts.
  std::vector<ErrorPiece> pieces = {};
};
// What this rank has of the pieces, from its part's begin on.
std::vector<ErrorPiece> PiecesOf(const ErrorArray& array, int rank);

// The two that a rank has.
struct ErrorLayout {
  // What this rank's messages have left out: of kOneBit and kTopK of all exchanged elements, of
  // kPowerSgd of the matrices that have factors. In two hops each place in nodes has a part, of the
  // messages of its node's sums.
  ErrorArray own = {};
  // kOneBit: what messages of sums over all ranks have left out, a part for each rank that
  // exchanges. kPowerSgd: the factors Q, the same on all ranks, each at its matrix's begin. kTopK
  // has none.
  ErrorArray second = {};
  // kPowerSgd between groups: what this rank's slice has of matrices in rows that are not whole, or
  // in too few of them, [at, + size) of what is exchanged. It crosses as it is, and leaves nothing;
  // where slices were others when errors were saved, there may be some, which the next exchange
  // sends. They lie in the slice of the first array.
  std::vector<ErrorPiece> plain = {};
};
// All 0 where there are no errors. `rank`: in its group; between groups the others exchange other
// elements.
ErrorLayout ErrorLayoutOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                          int rank = 0);

// kPowerSgd: the parameters as matrices. Rows are the first dimension, columns all others together;
// what has one dimension, or ParameterSpec::low_rank false, is a single row. Of a slice its whole
// rows are a matrix, and what it has of rows before and behind them are vectors.
struct ExchangedTensor {
  collectives::PowerSgdTensor tensor;
  int64_t in_bucket = 0;
  // Whether the parameter has several rows.
  bool of_matrix = false;
};
std::vector<ExchangedTensor> ExchangedTensors(const Plan& plan, const ZeroOptions& options,
                                              const Bucket& bucket, int rank);
// The same as the exchange takes them.
std::vector<collectives::PowerSgdTensor> PowerSgdTensorsOf(const Plan& plan,
                                                           const ZeroOptions& options,
                                                           const Bucket& bucket, int rank);
// Buckets of the same matrices take turns with the memory of one exchange: that of the first one
// that is trained.
int FirstOfTheseTensors(const Plan& plan, const ZeroOptions& options, int bucket, int rank);

// kPowerSgd: of its means, which are in fp32.
inline collectives::PowerSgdOptions PowerSgdOptionsOf(const ZeroOptions& options) {
  return {.rank = options.gradient_compression->rank,
          .iterations = options.gradient_compression->iterations};
}

// kTopK: how many of so many elements cross.
int64_t TopKOf(const ZeroOptions& options, int64_t elements);

// A step is skipped as for an overflow if on any rank the norm of what is exchanged is as much, or
// that of the errors or moments that are added: then no sum of exchanges is ever 2^64, where
// messages of signs end, with up to 128 ranks a node (decision 0261).
inline constexpr double kExchangeLimit = 0x1p36;
// The fp32 elements of a bucket that are added to gradients.
struct AddedElements {
  // Errors; the last ones in pieces.
  int64_t own = 0, second = 0;
  std::vector<ErrorPiece> plain = {};
  // Of exchanges of moments.
  int64_t first = 0, moved = 0;
};
AddedElements AddedElementsOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket,
                              int rank);
// The doubles in which squares of gradients are summed, and then those of what is added.
int64_t ExchangeSums(const Plan& plan, const ZeroOptions& options, int rank);
// Device memory with which it is decided what is exchanged: these sums, statistics of what is
// added, and what StepControl writes.
int64_t ExchangeControlBytes(const Plan& plan, const ZeroOptions& options, int rank);

// Memory of communication of all exchanges.
int64_t ExchangeBytes(const Plan& plan, const ZeroOptions& options, int rank);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_EXCHANGE_LAYOUT_H_
