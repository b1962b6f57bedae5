#ifndef BRIGADE_BENCHMARKS_COLLECTIVES_ARRAYS_H_
#define BRIGADE_BENCHMARKS_COLLECTIVES_ARRAYS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/context.h"

namespace brigade::benchmarks {

// What every rank does when it is a contestant's turn: one call, `times` in a row.
struct Turn {
  collectives::CollectiveKind kind;
  // Elements of the larger of a rank's arrays: what nccl-tests calls the size.
  int64_t whole;
  bool in_place;
  int times;
  // One call on filled arrays: count what is wrong.
  bool check = false;
};

// One rank's part in a turn. `count` as in CollectiveSignature; fp32 sums.
struct Round {
  collectives::CollectiveKind kind;
  const float* input;
  float* output;
  int64_t count;
  int times;
};

// The arrays of ranks that are threads of this process.
class Arrays {
 public:
  static absl::StatusOr<Arrays> Create(int ranks, int64_t elements, device::Context& context);

  // Sums stay exact, however often an in-place operation runs, if all but rank 0 are zero.
  void Fill(int64_t whole);

  Round MakeRound(int rank, const Turn& turn);

  // After a turn that checks.
  int64_t CountWrong(const Turn& turn) const;

  int ranks() const { return ranks_; }
  const float* input(int rank) const { return input_[rank]; }
  float* output(int rank) { return output_[rank]; }
  int64_t whole() const { return whole_; }

 private:
  Arrays(int ranks, int64_t elements) : ranks_(ranks), whole_(elements) {}

  int ranks_;
  int64_t whole_;
  std::vector<float*> input_, output_;
  std::vector<device::Buffer> buffers_;
};

// What element `i` of a filled input is, and, being the only one that is not zero, of an
// all-reduce.
inline float RankZeroValue(int64_t i) { return static_cast<float>(i % 128); }

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COLLECTIVES_ARRAYS_H_
