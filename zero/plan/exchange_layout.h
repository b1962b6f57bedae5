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

// Elements [begin in the bucket, + size) are saved of [at in an array of errors, + size).
struct ErrorPiece {
  int64_t in_bucket = 0;
  int64_t at = 0;
  int64_t size = 0;
};

// The two arrays of errors that a rank has of a bucket, in fp32.
struct ErrorLayout {
  // What this rank's messages have left out: of kOneBit and kTopK of all exchanged elements, of
  // kPowerSgd of the matrices that have factors.
  int64_t own = 0;
  std::vector<ErrorPiece> own_pieces = {};
  // kOneBit: what messages of sums have left out, of this rank's part; pieces count from the first
  // rank's on. kPowerSgd: the factors Q, the same on all ranks, each at its parameter's begin.
  // kTopK has none.
  int64_t second = 0;
  bool second_in_parts = false;
  std::vector<ErrorPiece> second_pieces = {};
};
// All 0 where there are no errors.
ErrorLayout ErrorLayoutOf(const Plan& plan, const ZeroOptions& options, const Bucket& bucket);

// kPowerSgd: the parameters as matrices. Rows are the first dimension, columns all others together;
// what has one dimension is a single row.
std::vector<collectives::PowerSgdTensor> ExchangedTensors(const Plan& plan, const Bucket& bucket);
// Buckets of the same matrices take turns with the memory of one exchange: that of the first one
// that is trained.
int FirstOfTheseTensors(const Plan& plan, int bucket);

// kTopK: how many of so many elements cross.
int64_t TopKOf(const ZeroOptions& options, int64_t elements);

// Memory of communication of all exchanges.
int64_t ExchangeBytes(const Plan& plan, const ZeroOptions& options);

}  // namespace brigade::zero::internal

#endif  // BRIGADE_ZERO_PLAN_EXCHANGE_LAYOUT_H_
