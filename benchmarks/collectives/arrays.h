#ifndef BRIGADE_BENCHMARKS_COLLECTIVES_ARRAYS_H_
#define BRIGADE_BENCHMARKS_COLLECTIVES_ARRAYS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "brigade/collectives/collective.h"
#include "brigade/device/context.h"
#include "brigade/precision/dtype.h"

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
  // A floating-point training format.
  precision::DType dtype = precision::DType::kFloat32;
};

// One rank's part in a turn. `count` as in CollectiveSignature; sums.
struct Round {
  collectives::CollectiveKind kind;
  precision::DType dtype;
  const void* input;
  void* output;
  int64_t count;
  int times;
};

// The arrays of ranks that are threads of this process.
class Arrays {
 public:
  static absl::StatusOr<Arrays> Create(int ranks, int64_t bytes, device::Context& context);

  // Sums stay exact, however often an in-place operation runs, if all but rank 0 are zero.
  void Fill(int64_t whole, precision::DType dtype);

  Round MakeRound(int rank, const Turn& turn);

  // After a turn that checks.
  int64_t CountWrong(const Turn& turn) const;

  int ranks() const { return ranks_; }
  const char* input(int rank) const { return input_[rank]; }
  char* output(int rank) { return output_[rank]; }
  // Of an array.
  int64_t bytes() const { return bytes_; }

 private:
  Arrays(int ranks, int64_t bytes) : ranks_(ranks), bytes_(bytes) {}

  int ranks_;
  int64_t bytes_;
  std::vector<char*> input_, output_;
  std::vector<device::Buffer> buffers_;
};

// What element `i` of a filled input is, and, being the only one that is not zero, of an
// all-reduce. Every training format has it.
inline float RankZeroValue(int64_t i) { return static_cast<float>(i % 128); }

}  // namespace brigade::benchmarks

#endif  // BRIGADE_BENCHMARKS_COLLECTIVES_ARRAYS_H_
