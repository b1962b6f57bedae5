#ifndef BRIGADE_COLLECTIVES_ALGORITHMS_BUILDER_H_
#define BRIGADE_COLLECTIVES_ALGORITHMS_BUILDER_H_

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "brigade/collectives/algorithms/program.h"

namespace brigade::collectives {

// Emits the instructions of one rank: At(stage).From(...).From(...).To(...).Move(count).
class ProgramBuilder {
 public:
  ProgramBuilder(int rank, int size, absl::FunctionRef<void(const Instruction&)> visit)
      : rank_(rank), size_(size), visit_(visit) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  int previous() const { return behind(1); }
  int next() const { return behind(-1); }
  int behind(int steps) const { return ((rank_ - steps) % size_ + size_) % size_; }

  ProgramBuilder& At(int stage) {
    stage_ = stage;
    sources_.clear();
    targets_.clear();
    return *this;
  }
  ProgramBuilder& From(const Part& part) {
    sources_.push_back(part);
    return *this;
  }
  ProgramBuilder& From(int rank, Side side, int64_t begin) { return From({rank, side, begin}); }
  ProgramBuilder& FromAll(int64_t begin) {
    for (int rank = 0; rank < size_; ++rank) From(rank, Side::kInput, begin);
    return *this;
  }
  ProgramBuilder& To(const Part& part) {
    targets_.push_back(part);
    return *this;
  }
  ProgramBuilder& To(int rank, Side side, int64_t begin) { return To({rank, side, begin}); }
  ProgramBuilder& ToAll(int64_t begin) {
    for (int rank = 0; rank < size_; ++rank) To(rank, Side::kOutput, begin);
    return *this;
  }
  void Move(int64_t count) {
    if (count > 0) visit_({stage_, sources_, targets_, count});
  }

 private:
  const int rank_;
  const int size_;
  const absl::FunctionRef<void(const Instruction&)> visit_;
  int stage_ = 0;
  // Groups of more ranks than that allocate.
  absl::InlinedVector<Part, 64> sources_;
  absl::InlinedVector<Part, 64> targets_;
};

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_ALGORITHMS_BUILDER_H_
